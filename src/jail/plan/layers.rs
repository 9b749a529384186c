//! The private layers that last: a home for each workspace, and writable layers over caches.
//!
//! They are kept by workspace, not for all: what an agent leaves behind in its home or its caches
//! is run again by agents on the same project, and by no other.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use super::trust::{Trust, remove};

/// The private directories of a workspace's jails, for one run.
#[derive(Debug)]
pub struct Layers {
    pub home: PathBuf,
    caches: PathBuf,
    trust: Trust,
    /// An overlay's layer belongs to one jail at a time; held as long as this lives.
    _slot: Flock<File>,
}

/// Why a layer cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("cannot make the private directory {}", path.display())]
    Make {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{} jails of this workspace are running already", .0)]
    TooMany(usize),
}

/// Jails of one workspace at the same time.
const MOST_AT_ONCE: usize = 64;

impl Layers {
    /// Takes the layers of `workspace` in the state directory `state`.
    pub fn take(state: &Path, workspace: &Path) -> Result<Self, LayerError> {
        let own = state.join("layers").join(name_of(workspace));
        let home = own.join("home");
        make(&home)?;
        let (slot, caches) = free_slot(&own)?;
        let trust = Trust::of_this_start();
        let failed = |cause| LayerError::Make { path: caches.clone(), cause };
        trust.renew(&caches).map_err(failed)?;
        Ok(Self { home, caches, trust, _slot: slot })
    }

    /// The layer over the cache at `path`: a directory with `upper` and an empty `work`.
    pub fn cache(&self, path: &Path) -> Result<PathBuf, LayerError> {
        let layer = self.caches.join(name_of(path));
        let work = layer.join("work");
        remove(&work).map_err(|cause| LayerError::Make { path: work.clone(), cause })?;
        make(&layer.join("upper"))?;
        make(&work)?;
        Ok(layer)
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        // Without the note the layer counts as torn after the next start of the machine.
        drop(self.trust.note(&self.caches));
    }
}

fn free_slot(own: &Path) -> Result<(Flock<File>, PathBuf), LayerError> {
    for number in 0..MOST_AT_ONCE {
        let caches = own.join(format!("caches-{number}"));
        make(&caches)?;
        let failed = |cause| LayerError::Make { path: caches.clone(), cause };
        let directory = File::open(&caches).map_err(failed)?;
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(slot) => return Ok((slot, caches)),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {}
            Err((_, other)) => return Err(failed(other.into())),
        }
    }
    Err(LayerError::TooMany(MOST_AT_ONCE))
}

/// A name that says which path it stands for and is no path itself.
fn name_of(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let last = path.file_name().unwrap_or_default().to_string_lossy();
    let plain: String =
        last.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(32).collect();
    format!("{plain}-{hex}")
}

fn make(path: &Path) -> Result<(), LayerError> {
    let failed = |cause| LayerError::Make { path: path.to_owned(), cause };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    // The agent's own directory may not be what a link of its making leads to.
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if metadata.is_dir() { Ok(()) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_jails_of_a_workspace_share_a_home_and_no_cache_layer() {
        let state = tempfile::tempdir().unwrap();
        let take = || Layers::take(state.path(), Path::new("/w/project")).unwrap();
        let (first, second) = (take(), take());
        assert_eq!(first.home, second.home);
        let cache = Path::new("/home/u/.cargo/registry");
        let (a, b) = (first.cache(cache).unwrap(), second.cache(cache).unwrap());
        assert_ne!(a, b);
        drop(first);
        assert_eq!(take().cache(cache).unwrap(), a);
    }

    #[test]
    fn another_workspace_has_another_home() {
        let state = tempfile::tempdir().unwrap();
        let home = |path: &str| Layers::take(state.path(), Path::new(path)).unwrap().home.clone();
        assert_ne!(home("/a/project"), home("/b/project"));
    }
}
