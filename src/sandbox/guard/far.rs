//! The watch beyond the guarded directories: closed names that the host makes elsewhere.
//!
//! Every other directory of the tree is watched as well, found little by little while the jail
//! runs. A name that may be closed is told at once, so that it can be covered by a mount; whoever
//! opened it before that has it, which is why this is no guard.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use nix::dir::Type;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use super::host::watch_dir;
use super::tree::entries;
use super::wire::At;

/// So many directories are looked through before the guard listens again.
const AT_ONCE: usize = 32;

/// Watches on the directories that are not guarded.
#[derive(Debug)]
pub(super) struct FarWatch {
    inotify: Inotify,
    patterns: Vec<String>,
    folds_case: bool,
    /// The patterns compiled, when they are first needed: the launch does not wait for it.
    suspects: Option<GlobSet>,
    dirs: BTreeMap<WatchDescriptor, PathBuf>,
    /// Directories that are still to be looked through.
    left: VecDeque<PathBuf>,
    /// The kernel gives no more watches.
    is_full: bool,
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
    /// A watch for names that match one of `patterns`, which are relative to the tree's root, in
    /// any case where names fold.
    pub(super) fn new(patterns: Vec<String>, folds_case: bool) -> io::Result<Self> {
        Ok(Self {
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            patterns,
            folds_case,
            suspects: None,
            dirs: BTreeMap::new(),
            left: VecDeque::new(),
            is_full: false,
        })
    }

    /// Has everything at and below `dir` looked through by and by, if there is anything to find.
    pub(super) fn add(&mut self, dir: PathBuf) {
        if !self.is_full && !self.patterns.is_empty() {
            self.left.push_back(dir);
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
        let suspects = compiled(&mut self.suspects, &self.patterns, self.folds_case)?;
        let mut found = Found::default();
        for _ in 0..AT_ONCE {
            let Some(dir) = self.left.pop_front() else { break };
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
            for (name, kind) in entries(&real).into_iter().flatten().flatten() {
                let at = At { dir: dir.clone(), name };
                // One of which the filesystem does not say so is looked through to find out.
                let is_dir = kind.is_none_or(|kind| kind == Type::Directory);
                if suspects.is_match(at.path()) {
                    found.suspects.push(at.clone());
                }
                if is_dir && !is_guarded(&at.path()) {
                    self.left.push_back(at.path());
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
        let suspects = compiled(&mut self.suspects, &self.patterns, self.folds_case)?;
        let mut found = Found::default();
        for event in events {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                // Everything that is known is looked through again.
                self.left = self.dirs.values().cloned().collect();
                continue;
            }
            if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                self.dirs.remove(&event.wd);
                continue;
            }
            let (Some(dir), Some(name)) = (self.dirs.get(&event.wd), event.name) else { continue };
            let at = At { dir: dir.clone(), name: name.into() };
            if suspects.is_match(at.path()) {
                found.suspects.push(at.clone());
            }
            if event.mask.contains(AddWatchFlags::IN_ISDIR) && !self.is_full {
                self.left.push_back(at.path());
            }
        }
        Ok(found)
    }
}

fn compiled<'s>(
    compiled: &'s mut Option<GlobSet>,
    patterns: &[String],
    folds_case: bool,
) -> io::Result<&'s GlobSet> {
    if compiled.is_none() {
        let mut suspects = GlobSetBuilder::new();
        for pattern in patterns {
            let mut glob = GlobBuilder::new(pattern);
            glob.literal_separator(true).backslash_escape(true).case_insensitive(folds_case);
            suspects.add(glob.build().map_err(io::Error::other)?);
        }
        *compiled = Some(suspects.build().map_err(io::Error::other)?);
    }
    compiled.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
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
