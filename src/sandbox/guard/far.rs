//! The watch beyond the guarded directories: closed names that the host makes elsewhere.
//!
//! Every other directory of the tree is watched as well, found little by little while the jail
//! runs. A name that may be closed is told at once, so that it can be covered by a mount; whoever
//! opened it before that has it, which is why this is no guard.
//!
//! Everything was looked through before the launch. What is in a directory is looked at again only
//! where that could be out of date: to read a large tree a second time would take one of the
//! processors from what the jail was started for.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use nix::dir::Type;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nix::sys::stat::{FileStat, fstat};
use nix::sys::statfs::{EXT4_SUPER_MAGIC, FsType, TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs};

use super::host::watch_dir;
use super::tree::entries;
use super::wire::At;
use crate::plan::Guarded;

/// So many directories are looked through before the guard listens again.
const AT_ONCE: usize = 32;

/// In seconds. A change carries the time of the clock's last tick, which is at most 10 ms old; the
/// rest is for a clock that is set right meanwhile.
const LEEWAY: i64 = 1;

/// Where the link count of a directory is 2 and one for each directory in it.
const COUNTING: [FsType; 3] = [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC];

/// Watches on the directories that are not guarded.
#[derive(Debug)]
pub(super) struct FarWatch {
    inotify: Inotify,
    patterns: Vec<String>,
    folds_case: bool,
    /// The patterns compiled, when they are first needed.
    suspects: Option<GlobSet>,
    /// When the scan before the launch began, in seconds since the epoch.
    scanned: i64,
    dirs: BTreeMap<WatchDescriptor, PathBuf>,
    left: VecDeque<Left>,
    /// The kernel gives no more watches.
    is_full: bool,
}

/// A directory that is still to be looked through.
#[derive(Debug)]
struct Left {
    dir: PathBuf,
    looked: Looked,
}

/// Whether a directory was looked through already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// At the scan before the launch, or later.
    Before,
    Never,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Names that may be closed.
    pub(super) suspects: Vec<At>,
    /// The first directory that could not be watched, for want of watches.
    pub(super) unwatched: Option<PathBuf>,
}

impl FarWatch {
    /// A watch for names that match one of the suspects of `guarded`.
    pub(super) fn new(guarded: &Guarded) -> io::Result<Self> {
        Ok(Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            patterns: guarded.suspects.clone(),
            folds_case: guarded.folds_case,
            suspects: None,
            scanned: guarded.scanned,
            dirs: BTreeMap::new(),
            left: VecDeque::new(),
            is_full: false,
        })
    }

    /// Has everything at and below `dir` looked through by and by, if there is anything to find.
    pub(super) fn add(&mut self, dir: PathBuf, looked: Looked) {
        if !self.is_full && !self.patterns.is_empty() {
            self.left.push_back(Left { dir, looked });
        }
    }

    /// Whether directories are left to look through.
    pub(super) fn is_behind(&self) -> bool {
        !self.left.is_empty()
    }

    /// Goes on looking through directories; `open` opens a real one, `is_guarded` says which are
    /// somebody else's.
    pub(super) fn look_on(
        &mut self,
        open: impl Fn(&Path) -> io::Result<OwnedFd>,
        is_guarded: impl Fn(&Path) -> bool,
    ) -> io::Result<Found> {
        let mut found = Found::default();
        for _ in 0..AT_ONCE {
            let Some(Left { dir, looked }) = self.left.pop_front() else { break };
            // What is gone, or closed to us, is closed to the agent as well.
            let Ok(real) = open(&dir) else { continue };
            match watch_dir(&self.inotify, &real, APPEARS)? {
                Ok(watch) => drop(self.dirs.insert(watch, dir.clone())),
                Err(Errno::ENOSPC) => {
                    self.is_full = true;
                    self.left.clear();
                    found.unwatched = Some(dir);
                    break;
                }
                Err(_) => continue,
            }
            // After the watch is set, so that nothing falls between the two.
            let stat = fstat(&real)?;
            let is_known = looked == Looked::Before && is_older(&stat, self.scanned);
            let looked = if is_known { Looked::Before } else { Looked::Never };
            if is_known && holds_no_directory(&real, &stat) {
                continue;
            }
            for (name, kind) in entries(&real).into_iter().flatten().flatten() {
                // One of which the filesystem does not say so is looked through to find out.
                let is_dir = kind.is_none_or(|kind| kind == Type::Directory);
                if is_known && !is_dir {
                    continue;
                }
                let at = At { dir: dir.clone(), name };
                if !is_known && self.suspects()?.is_match(at.path()) {
                    found.suspects.push(at.clone());
                }
                if is_dir && !is_guarded(&at.path()) {
                    self.left.push_back(Left { dir: at.path(), looked });
                }
            }
        }
        Ok(found)
    }

    /// What appeared since the last call.
    pub(super) fn appeared(&mut self) -> io::Result<Found> {
        let events = match self.inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Found::default()),
            Err(other) => return Err(other.into()),
        };
        let mut found = Found::default();
        for event in events {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                // All are looked at again. What is lost left its time on one of them.
                let again = self.dirs.values().cloned();
                self.left = again.map(|dir| Left { dir, looked: Looked::Before }).collect();
                continue;
            }
            if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                self.dirs.remove(&event.wd);
                continue;
            }
            let (Some(dir), Some(name)) = (self.dirs.get(&event.wd), event.name) else { continue };
            let at = At { dir: dir.clone(), name: name.into() };
            if self.suspects()?.is_match(at.path()) {
                found.suspects.push(at.clone());
            }
            if event.mask.contains(AddWatchFlags::IN_ISDIR) && !self.is_full {
                self.left.push_back(Left { dir: at.path(), looked: Looked::Never });
            }
        }
        Ok(found)
    }

    fn suspects(&mut self) -> io::Result<&GlobSet> {
        if self.suspects.is_none() {
            let mut suspects = GlobSetBuilder::new();
            for pattern in &self.patterns {
                let mut glob = GlobBuilder::new(pattern);
                let glob = glob.literal_separator(true).backslash_escape(true);
                let glob = glob.case_insensitive(self.folds_case).build();
                suspects.add(glob.map_err(io::Error::other)?);
            }
            self.suspects = Some(suspects.build().map_err(io::Error::other)?);
        }
        self.suspects.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Whether nothing came to or went from a directory since `scanned`: that sets its time of change,
/// which nobody can set back (inode(7)).
fn is_older(stat: &FileStat, scanned: i64) -> bool {
    stat.st_ctime + LEEWAY < scanned
}

/// Whether a directory's link count says so.
fn holds_no_directory(dir: &OwnedFd, stat: &FileStat) -> bool {
    let counts = || fstatfs(dir).is_ok_and(|on| COUNTING.contains(&on.filesystem_type()));
    stat.st_nlink == 2 && counts()
}

impl AsFd for FarWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

const APPEARS: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_ONLYDIR)
    .union(AddWatchFlags::IN_DONT_FOLLOW);

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    use tempfile::TempDir;

    use super::*;

    /// A tree in which `src/deep` holds one name that may be closed.
    struct Tried {
        dir: TempDir,
        far: FarWatch,
    }

    impl Tried {
        /// Scanned so many seconds after it was made.
        fn scanned(after: i64, looked: Looked) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("src/deep")).unwrap();
            fs::write(dir.path().join("src/deep/.env"), "").unwrap();
            let made = fstat(File::open(&dir).unwrap()).unwrap().st_ctime;
            let mut far = FarWatch::new(&Guarded {
                root: dir.path().to_owned(),
                views: Vec::new(),
                suspects: vec!["**/.env".to_owned()],
                folds_case: false,
                scanned: made + after,
            })
            .unwrap();
            far.add("src".into(), looked);
            Self { dir, far }
        }

        /// What is found until nothing is left.
        fn found(&mut self) -> Vec<PathBuf> {
            let open_real = |dir: &Path| {
                let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                Ok(open(&self.dir.path().join(dir), flags, Mode::empty())?)
            };
            let mut found = self.far.appeared().unwrap().suspects;
            while self.far.is_behind() {
                found.extend(self.far.look_on(open_real, |_| false).unwrap().suspects);
            }
            found.iter().map(At::path).collect()
        }
    }

    const LATER: i64 = 3600;

    #[test]
    fn what_changed_since_the_scan_is_looked_through_again() {
        let found = [PathBuf::from("src/deep/.env")];
        for seconds in [-LATER, 0, LEEWAY] {
            assert_eq!(Tried::scanned(seconds, Looked::Before).found(), found, "{seconds}");
        }
    }

    #[test]
    fn what_the_scan_never_saw_is_looked_through_however_old_it_is() {
        assert_eq!(Tried::scanned(LATER, Looked::Never).found(), [PathBuf::from("src/deep/.env")]);
    }

    #[test]
    fn what_is_as_the_scan_saw_it_is_only_watched() {
        let mut tried = Tried::scanned(LATER, Looked::Before);
        assert!(tried.found().is_empty());
        fs::write(tried.dir.path().join("src/.env"), "").unwrap();
        fs::rename(tried.dir.path().join("src/.env"), tried.dir.path().join("src/deep/.env"))
            .unwrap();
        let found = ["src/.env", "src/deep/.env"].map(PathBuf::from);
        assert_eq!(tried.found(), found);
    }

    #[test]
    fn a_directory_that_comes_is_looked_through_however_old_it_is() {
        let mut tried = Tried::scanned(LATER, Looked::Before);
        assert!(tried.found().is_empty());
        fs::create_dir_all(tried.dir.path().join("aside/old")).unwrap();
        fs::write(tried.dir.path().join("aside/old/.env"), "").unwrap();
        fs::rename(tried.dir.path().join("aside"), tried.dir.path().join("src/new")).unwrap();
        assert_eq!(tried.found(), [PathBuf::from("src/new/old/.env")]);
    }
}
