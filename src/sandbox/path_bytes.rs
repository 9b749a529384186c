//! Paths on the wire as the bytes that they are: serde's own form refuses what is not UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserializer, Serializer};
use serde_bytes::{ByteBuf, Bytes, Deserialize, Serialize};

pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    Bytes::new(path.as_os_str().as_bytes()).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let bytes = ByteBuf::deserialize(deserializer)?;
    Ok(OsString::from_vec(bytes.into_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    struct One(#[serde(with = "super")] PathBuf);

    #[test]
    fn a_path_that_is_not_utf_8_travels() {
        let path = One(OsString::from_vec(b"/w/\xff/.env".to_vec()).into());
        let bytes = postcard::to_stdvec(&path).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(path));
    }
}
