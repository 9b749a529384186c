//! The state directory: where ledgers lie, and that nobody else can have laid them there.
//!
//! Every directory and file of ours is opened without following a link, relative to a descriptor
//! of its parent, and must belong to us, be of the right kind, and be writable by nobody else; a
//! file must have one name. What stands above our directory is the user's own and not judged.
//! A planted link would otherwise let an agent of an earlier run, or another user, make this
//! program append to, truncate or read back a file of their choice.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use crate::RunId;

const RUNS: &str = "runs";
const LEDGER: &str = "ledger.jsonl";
/// How long another process may hold a lock of ours.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const PRIVATE_DIR: Mode = Mode::S_IRWXU;
const PRIVATE_FILE: Mode = Mode::from_bits_truncate(0o600);

/// Why a file or directory of the ledger is not used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot make {path}")]
    Make {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot open {path}")]
    Open {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot remove {path}")]
    Remove {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{path} is not a plain {wanted}")]
    WrongKind { path: PathBuf, wanted: Kind },
    #[error("{path} belongs to uid {owner}, not to the caller")]
    WrongOwner { path: PathBuf, owner: u32 },
    #[error("{path} can be written by others (mode {mode:o})")]
    Writable { path: PathBuf, mode: u32 },
    #[error("{path} has a second name, a hard link")]
    Linked { path: PathBuf },
}

impl StateError {
    /// Whether there is simply nothing yet.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { cause, .. } | Self::Remove { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }
}

/// What a path of ours has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Directory => "directory",
            Self::File => "file",
        })
    }
}

/// The directory that holds the ledgers of all runs, open and checked.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
    dir: Arc<OwnedFd>,
    runs: Arc<OwnedFd>,
}

impl StateDir {
    /// Opens the state directory at `path`, and makes it when it is not there.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(|cause| StateError::Make { path: parent.to_owned(), cause })?;
        }
        let dir = own_dir(AT_FDCWD, path, path)?;
        let runs = own_dir(&dir, Path::new(RUNS), &path.join(RUNS))?;
        Ok(Self { path: path.to_owned(), dir: Arc::new(dir), runs: Arc::new(runs) })
    }

    /// Opens the state directory at `path` without making or changing anything.
    pub fn existing(path: &Path) -> Result<Self, StateError> {
        let dir = open_dir(AT_FDCWD, path, path)?;
        let runs = open_dir(&dir, Path::new(RUNS), &path.join(RUNS))?;
        Ok(Self { path: path.to_owned(), dir: Arc::new(dir), runs: Arc::new(runs) })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of one run.
    #[must_use]
    pub fn run_dir(&self, run: &RunId) -> PathBuf {
        self.path.join(RUNS).join(run.as_str())
    }

    /// The ledger of one run.
    #[must_use]
    pub fn ledger_path(&self, run: &RunId) -> PathBuf {
        self.run_dir(run).join(LEDGER)
    }

    /// The runs that have a directory, oldest first.
    pub fn runs(&self) -> Result<Vec<RunId>, StateError> {
        let path = self.path.join(RUNS);
        let failed = |errno: Errno| StateError::Read { path: path.clone(), cause: errno.into() };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing =
            Dir::openat(self.runs.as_fd(), ".", flags, Mode::empty()).map_err(failed)?;
        let mut runs = Vec::new();
        for item in listing.iter() {
            let name = item.map_err(failed)?;
            // Whatever is not named like a run is not ours to judge.
            if let Some(run) = name.file_name().to_str().ok().and_then(|name| name.parse().ok())
                && !self.is_unborn(&run)
            {
                runs.push(run);
            }
        }
        runs.sort_unstable();
        Ok(runs)
    }

    /// Whether a launch was killed between making the run's directory and its ledger. The index
    /// knows a run only after both, so nothing that was on record can look like this.
    fn is_unborn(&self, run: &RunId) -> bool {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = Dir::openat(self.runs.as_fd(), run.as_str(), flags, Mode::empty());
        opened.is_ok_and(|mut dir| {
            dir.iter().flatten().all(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
        })
    }

    /// Makes the directory and the empty ledger of a new run.
    pub(crate) fn create_run(&self, run: &RunId) -> Result<File, StateError> {
        let dir_path = self.run_dir(run);
        mkdirat(&*self.runs, run.as_str(), PRIVATE_DIR)
            .map_err(|errno| StateError::Make { path: dir_path.clone(), cause: errno.into() })?;
        let dir = self.open_run_dir(run)?;
        let flags = OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_EXCL;
        open_file(&dir, LEDGER, flags, &self.ledger_path(run))
    }

    /// Opens the ledger of a run as `access` says.
    pub(crate) fn open_ledger(&self, run: &RunId, access: Access) -> Result<File, StateError> {
        let dir = self.open_run_dir(run)?;
        open_file(&dir, LEDGER, access.flags(), &self.ledger_path(run))
    }

    /// Opens `name` beside the ledger of a run for appending; makes it when it is not there.
    pub(crate) fn append_beside(&self, run: &RunId, name: &str) -> Result<File, StateError> {
        let dir = self.open_run_dir(run)?;
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT;
        open_file(&dir, name, flags, &self.run_dir(run).join(name))
    }

    /// Makes `name`, a new file beside the ledger of a run.
    pub fn create_beside(&self, run: &RunId, name: &str) -> Result<File, StateError> {
        let dir = self.open_run_dir(run)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        open_file(&dir, name, flags, &self.run_dir(run).join(name))
    }

    /// Opens `name` beside the ledger of a run.
    pub fn open_beside(&self, run: &RunId, name: &str) -> Result<File, StateError> {
        let dir = self.open_run_dir(run)?;
        open_file(&dir, name, OFlag::O_RDONLY, &self.run_dir(run).join(name))
    }

    /// Removes `name` beside the ledger of a run.
    pub fn remove_beside(&self, run: &RunId, name: &str) -> Result<(), StateError> {
        let path = self.run_dir(run).join(name);
        let dir = self.open_run_dir(run)?;
        unlinkat(&dir, name, UnlinkatFlags::NoRemoveDir)
            .map_err(|errno| StateError::Remove { path, cause: errno.into() })
    }

    /// Opens the directory `name/<run>` of the state directory; makes it when it is not there.
    pub fn own_dir_for(&self, name: &str, run: &RunId) -> Result<OwnedFd, StateError> {
        let path = self.path.join(name);
        let dir = own_dir(&*self.dir, Path::new(name), &path)?;
        own_dir(&dir, Path::new(run.as_str()), &path.join(run.as_str()))
    }

    /// Opens `name` in the state directory itself.
    pub(crate) fn open_top(&self, name: &str, access: Access) -> Result<File, StateError> {
        open_file(&*self.dir, name, access.flags(), &self.path.join(name))
    }

    fn open_run_dir(&self, run: &RunId) -> Result<OwnedFd, StateError> {
        open_dir(&*self.runs, Path::new(run.as_str()), &self.run_dir(run))
    }
}

/// What a file of ours is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// Reading and appending to what is there.
    Mend,
    /// Reading and appending; made when it is not there.
    Append,
    /// Reading and writing in place; made when it is not there.
    Overwrite,
}

impl Access {
    fn flags(self) -> OFlag {
        match self {
            Self::Read => OFlag::O_RDONLY,
            Self::Mend => OFlag::O_RDWR | OFlag::O_APPEND,
            Self::Append => OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT,
            Self::Overwrite => OFlag::O_RDWR | OFlag::O_CREAT,
        }
    }
}

/// Waits until nobody else holds `file`, then holds it, alone or shared, until it is closed.
///
/// Others hold it for microseconds. One that was stopped while it did so must not hang us.
pub(crate) fn lock(mut file: File, hold: FlockArg) -> io::Result<Flock<File>> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(file, hold) {
            Ok(locked) => return Ok(locked),
            Err((back, Errno::EINTR)) => file = back,
            Err((back, Errno::EWOULDBLOCK)) if Instant::now() < deadline => {
                file = back;
                thread::sleep(Duration::from_micros(200));
            }
            Err((_, errno)) => return Err(errno.into()),
        }
    }
}

/// Opens a directory of ours for a run, made when it is not there and closed to others' eyes.
fn own_dir(at: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, StateError> {
    let failed = |errno: Errno| StateError::Make { path: path.to_owned(), cause: errno.into() };
    match mkdirat(&at, name, PRIVATE_DIR) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let dir = open_dir(&at, name, path)?;
    if fstat(&dir).map_err(failed)?.st_mode & 0o077 != 0 {
        fchmod(&dir, PRIVATE_DIR).map_err(failed)?;
    }
    Ok(dir)
}

fn open_dir(at: impl AsFd, name: &Path, path: &Path) -> Result<OwnedFd, StateError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let dir = openat(at, name, flags, Mode::empty())
        .map_err(|errno| refused(errno, Kind::Directory, path))?;
    check(&dir, Kind::Directory, path)?;
    Ok(dir)
}

fn open_file(at: impl AsFd, name: &str, flags: OFlag, path: &Path) -> Result<File, StateError> {
    // O_NONBLOCK: opening a planted FIFO would otherwise wait for its other end for ever.
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file =
        openat(at, name, flags, PRIVATE_FILE).map_err(|errno| refused(errno, Kind::File, path))?;
    let stat = check(&file, Kind::File, path)?;
    if stat.st_nlink != 1 {
        return Err(StateError::Linked { path: path.to_owned() });
    }
    Ok(File::from(file))
}

/// Puts words on a refusal to open: these are what a link, a FIFO or a device answers.
fn refused(errno: Errno, wanted: Kind, path: &Path) -> StateError {
    const OTHER_KINDS: [Errno; 5] =
        [Errno::ELOOP, Errno::ENOTDIR, Errno::EISDIR, Errno::ENXIO, Errno::ENODEV];
    let path = path.to_owned();
    if OTHER_KINDS.contains(&errno) {
        StateError::WrongKind { path, wanted }
    } else {
        StateError::Open { path, cause: errno.into() }
    }
}

fn check(fd: impl AsFd, wanted: Kind, path: &Path) -> Result<FileStat, StateError> {
    let stat = fstat(fd)
        .map_err(|errno| StateError::Open { path: path.to_owned(), cause: errno.into() })?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let right = match wanted {
        Kind::Directory => SFlag::S_IFDIR,
        Kind::File => SFlag::S_IFREG,
    };
    if kind != right {
        return Err(StateError::WrongKind { path: path.to_owned(), wanted });
    }
    if stat.st_uid != geteuid().as_raw() {
        return Err(StateError::WrongOwner { path: path.to_owned(), owner: stat.st_uid });
    }
    if stat.st_mode & 0o022 != 0 {
        let mode = stat.st_mode & 0o7777;
        return Err(StateError::Writable { path: path.to_owned(), mode });
    }
    Ok(stat)
}
