//! `--report FILE`: promised before the run, written after it.
//!
//! The file may lie where the agent can write. Its directory is therefore held open from before the
//! launch, and the report is a new file that takes the name's place: what the agent put at that name
//! meanwhile, a link to a file of the caller's or a pipe, is replaced and never opened.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Where a report will go.
#[derive(Debug)]
pub struct ReportFile {
    directory: OwnedFd,
    name: OsString,
}

/// A report that cannot be written where it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the report {}", path.display())]
pub struct ReportError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

impl ReportFile {
    /// Holds the place of `path`. Nothing is written yet.
    pub fn reserve(path: &Path) -> Result<Self, ReportError> {
        let failed = |cause| ReportError { path: path.to_owned(), cause };
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let directory = open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let place = Self { directory, name: name.to_owned() };
        match place.is_directory() {
            Ok(true) => return Err(failed(Errno::EISDIR.into())),
            Ok(false) | Err(Errno::ENOENT) => {}
            Err(other) => return Err(failed(other.into())),
        }
        // Whether a file can be made here is known before anything runs.
        place.temporary().map_err(|errno| failed(errno.into()))?;
        place.forget_temporary();
        Ok(place)
    }

    /// Puts `text` at the name, whatever is there by now.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let written = self.temporary().map_err(io::Error::from).and_then(|file| {
            File::from(file).write_all(text.as_bytes())?;
            renameat(
                &self.directory,
                self.temporary_name().as_str(),
                &self.directory,
                &*self.name,
            )?;
            Ok(())
        });
        if written.is_err() {
            self.forget_temporary();
        }
        written
    }

    fn is_directory(&self) -> nix::Result<bool> {
        let found = fstatat(&self.directory, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(found.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR)
    }

    fn temporary_name(&self) -> String {
        format!(".kvro-report-{}", std::process::id())
    }

    fn temporary(&self) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_WRONLY;
        let mode = Mode::from_bits_truncate(0o644);
        openat(&self.directory, self.temporary_name().as_str(), flags | OFlag::O_CLOEXEC, mode)
    }

    fn forget_temporary(&self) {
        // What is not there needs no forgetting.
        let flags = UnlinkatFlags::NoRemoveDir;
        unlinkat(&self.directory, self.temporary_name().as_str(), flags).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_at_the_name_is_replaced_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (precious, report) = (place.path().join("precious"), place.path().join("report"));
        fs::write(&precious, "keep").unwrap();
        let file = ReportFile::reserve(&report).unwrap();
        symlink(&precious, &report).unwrap();
        file.write("{}").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "keep");
        assert_eq!(fs::read_to_string(&report).unwrap(), "{}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_at_the_name_stays_and_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let report = place.path().join("report");
        let file = ReportFile::reserve(&report).unwrap();
        fs::create_dir(&report).unwrap();
        file.write("{}").unwrap_err();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        ReportFile::reserve(&report).unwrap_err();
    }

    #[test]
    fn a_place_that_is_not_there_is_known_before_the_run() {
        ReportFile::reserve(Path::new("/nonexistent/report")).unwrap_err();
    }
}
