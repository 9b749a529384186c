//! The place where planted files go: `quarantine/<run>/<path>` in the state directory.
//!
//! A rename keeps everything as it was. Where the state directory is on another filesystem, it is a
//! bounded copy. What cannot be moved at all gets a name that means nothing to anybody, where it
//! is: it must not stay at a name that somebody's tools read.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use kvro_ledger::state::StateError;
use kvro_ledger::{RunId, StateDir};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{Mode, fstatat, mkdirat};

use super::copy::{At, Bounds, move_by_copy};
use super::reopen::{Reopened, directory_below};

const DIRECTORY: &str = "quarantine";
/// So many things may have had one name.
const MOST_ALIKE: u32 = 1000;

/// Why something is not moved.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuarantineError {
    #[error("there is no place for it")]
    State(#[source] StateError),
    #[error("it cannot be moved")]
    Move(#[source] io::Error),
}

#[derive(Debug)]
pub(super) struct Quarantine<'q> {
    state: &'q StateDir,
    run: &'q RunId,
    workspace: &'q Path,
    top: &'q OwnedFd,
    /// Made when something goes there: a run that planted nothing leaves no directory.
    place: OnceCell<OwnedFd>,
    bounds: Bounds,
}

impl<'q> Quarantine<'q> {
    /// For what `run` left in `workspace`, which is open as `top`.
    pub(super) fn new(
        state: &'q StateDir,
        run: &'q RunId,
        workspace: &'q Path,
        top: &'q OwnedFd,
    ) -> Self {
        Self { state, run, workspace, top, place: OnceCell::new(), bounds: Bounds::USUAL }
    }

    /// Moves what is at `path`, relative to the workspace, and says where it is now.
    pub(super) fn take(&self, path: &Path) -> Result<PathBuf, QuarantineError> {
        let name = path.file_name().ok_or(QuarantineError::Move(Errno::EINVAL.into()))?;
        let above = path.parent().unwrap_or(Path::new(""));
        let failed = |cause: io::Error| QuarantineError::Move(cause);
        let from = directory_below(self.top, above).map_err(|errno| failed(errno.into()))?;
        let from = At { directory: &from, name };
        match self.move_away(path, above, from) {
            Ok(kept) => Ok(kept),
            Err(error) => self.disarm(above, from).map_err(|_worse| error),
        }
    }

    fn move_away(
        &self,
        path: &Path,
        above: &Path,
        from: At<'_>,
    ) -> Result<PathBuf, QuarantineError> {
        let place = self.place()?;
        let failed = |cause: io::Error| QuarantineError::Move(cause);
        let to = made_below(place, above).map_err(failed)?;
        for number in 0..MOST_ALIKE {
            let name = numbered(from.name, number);
            let to = At { directory: &to, name: &name };
            match self.move_to(path, above, from, to) {
                Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => {}
                Err(error) => return Err(failed(error)),
                Ok(()) => {
                    let place = self.state.path().join(DIRECTORY).join(self.run.as_str());
                    return Ok(place.join(above).join(name));
                }
            }
        }
        Err(failed(Errno::EEXIST.into()))
    }

    fn move_to(&self, path: &Path, above: &Path, from: At<'_>, to: At<'_>) -> io::Result<()> {
        match rename(from, to) {
            Err(Errno::EXDEV) => {}
            // To another parent a directory goes only with a right to write it, and out of one
            // that can be written.
            Err(Errno::EACCES) => {
                let _above = Reopened::open(self.top, above)?;
                let _itself = Reopened::open(self.top, path).ok();
                match rename(from, to) {
                    Err(Errno::EXDEV) => return move_by_copy(from, to, self.bounds),
                    renamed => return Ok(renamed?),
                }
            }
            renamed => return Ok(renamed?),
        }
        move_by_copy(from, to, self.bounds)
    }

    /// Gives it a name without a meaning where it is.
    fn disarm(&self, above: &Path, from: At<'_>) -> io::Result<PathBuf> {
        let base = OsString::from(format!(".kvro-quarantine-{}", self.run));
        for number in 0..MOST_ALIKE {
            let name = numbered(&base, number);
            let to = At { directory: from.directory, name: &name };
            match rename(from, to) {
                Err(Errno::EEXIST) => {}
                renamed => {
                    renamed?;
                    return Ok(self.workspace.join(above).join(name));
                }
            }
        }
        Err(Errno::EEXIST.into())
    }

    fn place(&self) -> Result<&OwnedFd, QuarantineError> {
        if let Some(place) = self.place.get() {
            return Ok(place);
        }
        let place = self.state.own_dir_for(DIRECTORY, self.run).map_err(QuarantineError::State)?;
        Ok(self.place.get_or_init(|| place))
    }
}

/// Renames, and never over something.
fn rename(from: At<'_>, to: At<'_>) -> nix::Result<()> {
    let flags = RenameFlags::RENAME_NOREPLACE;
    match renameat2(from.directory, from.name, to.directory, to.name, flags) {
        // A filesystem without the flag; nobody else writes in the quarantine.
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            match fstatat(to.directory, to.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(Errno::ENOENT) => renameat(from.directory, from.name, to.directory, to.name),
                Ok(_) => Err(Errno::EEXIST),
                Err(errno) => Err(errno),
            }
        }
        renamed => renamed,
    }
}

/// Opens `path` below `top`, made where it is not there.
fn made_below(top: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut directory = top.try_clone()?;
    for part in path.components() {
        let Component::Normal(name) = part else { continue };
        match mkdirat(&directory, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(directory)
}

/// `name`, and `name.1`, `name.2`, … for what was called alike; short enough to be a name.
fn numbered(name: &OsStr, number: u32) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    if number == 0 {
        return name.to_owned();
    }
    let bytes = name.as_bytes();
    let mut numbered = OsStr::from_bytes(bytes.get(..240).unwrap_or(bytes)).to_owned();
    numbered.push(format!(".{number}"));
    numbered
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Place {
        root: tempfile::TempDir,
        state: StateDir,
        run: RunId,
    }

    impl Place {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("w/a")).unwrap();
            let state = StateDir::open(&root.path().join("state")).unwrap();
            Self { root, state, run: "20261130-161200-000001".parse().unwrap() }
        }

        fn work(&self, name: &str) -> PathBuf {
            self.root.path().join("w").join(name)
        }

        fn take(&self, path: &str, bounds: Bounds) -> Result<PathBuf, QuarantineError> {
            let (workspace, top) = (self.work(""), File::open(self.work("")).unwrap().into());
            let quarantine = Quarantine::new(&self.state, &self.run, &workspace, &top);
            Quarantine { bounds, ..quarantine }.take(Path::new(path))
        }
    }

    #[test]
    fn what_is_taken_is_kept_under_its_path_and_nothing_is_replaced() {
        let place = Place::new();
        for (text, kept) in [("1", "a/.env"), ("2", "a/.env.1"), ("3", "a/.env.2")] {
            fs::write(place.work("a/.env"), text).unwrap();
            let at = place.take("a/.env", Bounds::USUAL).unwrap();
            let expected = place.root.path().join("state/quarantine/20261130-161200-000001");
            assert_eq!(at, expected.join(kept));
            assert_eq!(fs::read_to_string(at).unwrap(), text);
        }
        assert_eq!(fs::read_dir(place.work("a")).unwrap().count(), 0);
    }

    #[test]
    fn closed_directories_are_moved_and_stay_closed() {
        let place = Place::new();
        fs::create_dir_all(place.work("a/.vscode")).unwrap();
        fs::set_permissions(place.work("a/.vscode"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(place.work("a"), Permissions::from_mode(0o500)).unwrap();
        let at = place.take("a/.vscode", Bounds::USUAL).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&at), mode(&place.work("a"))), (0o000, 0o500));
    }

    #[test]
    fn a_link_on_the_way_leads_nowhere() {
        let place = Place::new();
        fs::create_dir(place.root.path().join("precious")).unwrap();
        fs::write(place.root.path().join("precious/.env"), "keep").unwrap();
        symlink("../precious", place.work("b")).unwrap();
        place.take("b/.env", Bounds::USUAL).unwrap_err();
        assert!(place.root.path().join("precious/.env").exists());
        // A link itself is moved as one.
        symlink("../precious", place.work(".env")).unwrap();
        let at = place.take(".env", Bounds::USUAL).unwrap();
        assert_eq!(fs::read_link(at).unwrap(), Path::new("../precious"));
    }

    #[test]
    fn what_cannot_be_moved_loses_its_name() {
        let place = Place::new();
        fs::write(place.work("a/.env"), "x").unwrap();
        // Nothing can be made in the place of the quarantine.
        fs::write(place.root.path().join("state/quarantine"), "").unwrap();
        let at = place.take("a/.env", Bounds::USUAL).unwrap();
        assert_eq!(at, place.work("a/.kvro-quarantine-20261130-161200-000001"));
        assert!(!place.work("a/.env").exists());
    }
}
