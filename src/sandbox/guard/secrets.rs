//! Hidden files by what they are: one that the host gives an allowed name, as an editor does for
//! its backup, stays hidden under it.
//!
//! A file is known by its number and the time of its birth, since a number is used again. Copies
//! are other files, of which nothing is known here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// What is, or was, at a hidden name.
#[derive(Debug, Default)]
pub(super) struct Secrets(BTreeSet<Identity>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    device: u64,
    number: u64,
    /// Not every filesystem knows it.
    born: Option<SystemTime>,
}

impl Secrets {
    /// Remembers `real` for good.
    pub(super) fn keep(&mut self, real: &OwnedFd) -> io::Result<()> {
        self.0.extend(identity(real)?);
        Ok(())
    }

    /// Whether `real` is one of them.
    pub(super) fn is_one(&self, real: &OwnedFd) -> io::Result<bool> {
        Ok(identity(real)?.is_some_and(|identity| self.0.contains(&identity)))
    }
}

/// None for a link, which holds nothing itself.
fn identity(real: &OwnedFd) -> io::Result<Option<Identity>> {
    let metadata = File::from(real.try_clone()?).metadata()?;
    let (device, number, born) = (metadata.dev(), metadata.ino(), metadata.created().ok());
    Ok((!metadata.is_symlink()).then_some(Identity { device, number, born }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_known_under_any_name_and_no_other_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let open = |name: &str| OwnedFd::from(File::open(at(name)).unwrap());
        fs::write(at("secret"), "a").unwrap();
        fs::write(at("other"), "b").unwrap();
        let mut secrets = Secrets::default();
        secrets.keep(&open("secret")).unwrap();
        fs::rename(at("secret"), at("moved")).unwrap();
        fs::hard_link(at("moved"), at("linked")).unwrap();
        fs::copy(at("moved"), at("copied")).unwrap();
        let known = ["moved", "linked", "other", "copied"].map(|name| secrets.is_one(&open(name)));
        assert_eq!(known.map(Result::unwrap), [true, true, false, false]);
    }
}
