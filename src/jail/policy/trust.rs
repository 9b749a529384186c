//! Which project policies the user trusted to do more than tighten.
//!
//! Trust is for one directory and the exact bytes of its file: an edit drops it. The store lives in
//! the state directory, which no jail shows, so an agent cannot trust its own words.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::PolicyError;
use crate::replace::replace;

/// The store's name in the state directory.
const FILE: &str = "trusted.toml";

/// The user's trusted directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    path: PathBuf,
    trusted: Trusted,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trusted {
    /// From a directory to the digest of the policy file that was trusted there.
    #[serde(default)]
    directories: BTreeMap<String, String>,
}

impl TrustStore {
    /// Reads the store in `state_dir`; one that is not there is empty.
    pub fn read(state_dir: &Path) -> Result<Self, PolicyError> {
        let path = state_dir.join(FILE);
        let trusted = match fs::read_to_string(&path) {
            Ok(text) => match toml::from_str(&text) {
                Ok(trusted) => trusted,
                Err(_) => return Err(PolicyError::TrustStoreDamaged(path)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Trusted::default(),
            Err(cause) => {
                return Err(PolicyError::TrustStore { step: "read", path, cause });
            }
        };
        Ok(Self { path, trusted })
    }

    /// Whether exactly this `body` was trusted in `directory`.
    #[must_use]
    pub fn trusts(&self, directory: &Path, body: &[u8]) -> bool {
        // A directory whose name is not UTF-8 cannot be written down without guessing.
        directory
            .to_str()
            .and_then(|directory| self.trusted.directories.get(directory))
            .is_some_and(|trusted| *trusted == digest(body))
    }

    /// Trusts `body` in `directory`, in place of whatever was trusted there.
    pub fn trust(&mut self, directory: &Path, body: &[u8]) -> Result<(), PolicyError> {
        let name = directory.to_str().ok_or_else(|| PolicyError::TrustStore {
            step: "write a name that is not UTF-8 to",
            path: self.path.clone(),
            cause: io::ErrorKind::InvalidFilename.into(),
        })?;
        self.trusted.directories.insert(name.to_owned(), digest(body));
        self.write()
    }

    /// Takes the trust back; says whether there was any.
    pub fn forget(&mut self, directory: &Path) -> Result<bool, PolicyError> {
        let removed = directory.to_str().and_then(|name| self.trusted.directories.remove(name));
        if removed.is_some() {
            self.write()?;
        }
        Ok(removed.is_some())
    }

    fn write(&self) -> Result<(), PolicyError> {
        let failed =
            |cause| PolicyError::TrustStore { step: "write", path: self.path.clone(), cause };
        let text = toml::to_string(&self.trusted).map_err(io::Error::other).map_err(failed)?;
        replace_file(&self.path, &text).map_err(failed)
    }
}

fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    replace(path, text.as_bytes())
}

/// The digest of a policy's text, in hexadecimal.
pub(super) fn digest(body: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(body).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _written = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_drops_trust() -> Result<(), PolicyError> {
        let state = tempfile::tempdir().unwrap();
        let dir = Path::new("/w/project");
        TrustStore::read(state.path())?.trust(dir, b"version = 1")?;
        let store = TrustStore::read(state.path())?;
        assert!(store.trusts(dir, b"version = 1"));
        assert!(!store.trusts(dir, b"version = 1 "));
        assert!(!store.trusts(Path::new("/w"), b"version = 1"));
        assert!(TrustStore::read(state.path())?.forget(dir)?);
        assert!(!TrustStore::read(state.path())?.trusts(dir, b"version = 1"));
        Ok(())
    }

    #[test]
    fn a_damaged_store_is_an_error_and_not_an_empty_one() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FILE), "directories = 3").unwrap();
        let read = TrustStore::read(state.path());
        assert!(matches!(read, Err(PolicyError::TrustStoreDamaged(_))), "{read:?}");
    }
}
