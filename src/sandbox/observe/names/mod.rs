//! Judges the calls that names come and go by, and has the guard do what is allowed.
//!
//! Where no name is guarded, a call goes on as it is unless the name that it would make is closed.
//! There the caller could still exchange the string afterwards: it would make a file of its own
//! under a closed name, which the inspection at the end finds. In a guarded directory nothing goes
//! on as it is but what the read-only view refuses by itself.

mod call;
mod place;
mod rulings;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::FdFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::procfs;
use crate::guard::{
    About, Answer, Appeared, At, GuardHandle, Making, Shown, Standing, ToGuard, Unwatched,
};
use crate::plan::Guarded;
use crate::sys::{self, Notification, Notifier, Verdict};
use call::Call;
use place::{Caller, root_of};
use rulings::Ruling;

/// What the policy says of names in a guarded tree. Paths are relative to its root.
pub trait Names: fmt::Debug + Send {
    fn standing(&self, path: &Path) -> Standing;

    /// The content with which the file `from` may take the place of `to`, which is protected. None
    /// if it may not.
    fn replacement(&self, from: &Path, to: &Path) -> Option<Vec<u8>>;

    /// Whether something in the directory `from` would be closed if it lay at `to`.
    fn brings_closed(&self, from: &Path, to: &Path) -> bool;

    /// The directories at and below `dir`, which the host put there, that are to be guarded: outer
    /// before inner, with all that lead to one. None if nothing in there is closed.
    fn views(&self, dir: &Path) -> Vec<PathBuf>;
}

/// A call that was refused for its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedName {
    /// As the jail sees it.
    pub path: PathBuf,
    /// `open` (to change it), `create`, `remove`, `rename` or `link`.
    pub verb: &'static str,
}

/// What the guard cannot hold. Paths are as the jail sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Late {
    /// The host made a hidden name where nothing was guarded. It is covered now, and may have been
    /// read before.
    Exposed(PathBuf),
    /// From this directory on, what the host makes is not seen: the kernel gives no more watches.
    Unwatched(PathBuf),
}

/// The judge of names.
#[derive(Debug)]
pub(super) struct NameJudge {
    guard: GuardHandle,
    /// The root of the jail, opened with the first call.
    jail: Option<OwnedFd>,
    /// In the plan's order.
    trees: Vec<GuardedTree>,
}

/// A guarded tree, and what the policy says of names in it.
#[derive(Debug)]
pub struct GuardedTree {
    /// Its place in the plan.
    number: usize,
    root: PathBuf,
    /// The guarded directories, relative to the root.
    views: BTreeSet<PathBuf>,
    names: Box<dyn Names>,
}

impl GuardedTree {
    /// `number` is the place of `guarded` in the plan.
    #[must_use]
    pub fn new(number: usize, guarded: &Guarded, names: Box<dyn Names>) -> Self {
        let views = guarded.views.iter().map(|view| view.path.clone()).collect();
        Self { number, root: guarded.root.clone(), views, names }
    }

    fn ask(&self, message: ToGuard) -> About<ToGuard> {
        About { tree: self.number, message }
    }

    /// How what appeared is to be shown; tells if that was closed too late to be sure.
    fn judge(&mut self, at: At, is_dir: bool) -> (Shown, Option<Late>) {
        let standing = self.names.standing(&at.path());
        let views = match standing {
            Standing::Hidden => Vec::new(),
            Standing::Open | Standing::Protected if is_dir => self.names.views(&at.path()),
            Standing::Leads if is_dir => {
                let views = self.names.views(&at.path());
                if views.is_empty() { vec![at.path()] } else { views }
            }
            Standing::Open | Standing::Protected | Standing::Leads => Vec::new(),
        };
        // What is protected as a whole is covered as a whole.
        let is_below =
            standing == Standing::Protected && self.names.standing(&at.dir) == Standing::Protected;
        let standing = if is_below { Standing::Open } else { standing };
        let is_late = standing == Standing::Hidden && !self.views.contains(&at.dir);
        let late = is_late.then(|| Late::Exposed(self.root.join(at.path())));
        self.views.extend(views.iter().cloned());
        (Shown { at, standing, views }, late)
    }
}

impl NameJudge {
    pub(super) fn new(guard: GuardHandle, trees: Vec<GuardedTree>) -> Self {
        Self { guard, jail: None, trees }
    }

    /// Answers one notification; says what was refused.
    pub(super) fn answer(
        &mut self,
        notifier: &Notifier,
        asked: &Notification,
    ) -> io::Result<Option<RefusedName>> {
        let Ok(Some(call)) = Call::read(asked) else {
            // Memory that cannot be read names nothing.
            return notifier.answer(asked, Verdict::Continue).map(|()| None);
        };
        if !notifier.is_waiting(asked) {
            return Ok(None);
        }
        if self.jail.is_none() {
            let Ok(jail) = root_of(asked.pid) else {
                return notifier.answer(asked, Verdict::Refuse(libc::EACCES)).map(|()| None);
            };
            // Not that of another process, which came by the number meanwhile.
            if !notifier.is_waiting(asked) {
                return Ok(None);
            }
            self.jail = Some(jail);
        }
        let ruling = match &self.jail {
            Some(jail) => self.rule(Caller::new(asked.pid, jail), call),
            None => Ruling::Refuse(libc::EACCES),
        };
        match ruling {
            Ruling::GoOn => notifier.answer(asked, Verdict::Continue).map(|()| None),
            Ruling::Refuse(errno) => notifier.answer(asked, Verdict::Refuse(errno)).map(|()| None),
            Ruling::Closed(refused, errno) => {
                notifier.answer(asked, Verdict::Refuse(errno)).map(|()| Some(refused))
            }
            Ruling::Ask(request) => self.perform(notifier, asked, &request, None).map(|()| None),
            Ruling::Bind(request, number) => {
                let socket = sys::foreign_descriptor(procfs::process_of(asked.pid), number);
                match socket {
                    Ok(socket) => self.perform(notifier, asked, &request, Some(socket.as_fd())),
                    Err(_) => notifier.answer(asked, Verdict::Refuse(libc::EBADF)),
                }
                .map(|()| None)
            }
            Ruling::Replace(request, content) => {
                let memory = in_memory(&content)?;
                self.perform(notifier, asked, &request, Some(memory.as_fd())).map(|()| None)
            }
        }
    }

    fn perform(
        &mut self,
        notifier: &Notifier,
        asked: &Notification,
        request: &About<ToGuard>,
        content: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        match self.guard.ask(request, content)? {
            Answer::Done => {
                if let ToGuard::Make { at, what: Making::Dir { standing: Standing::Leads, .. } } =
                    &request.message
                    && let Some(tree) = self.trees.get_mut(request.tree)
                {
                    tree.views.insert(at.path());
                }
                notifier.answer(asked, Verdict::Answer(0))
            }
            Answer::IsThere => notifier.answer(asked, Verdict::Continue),
            Answer::Failed(errno) => notifier.answer(asked, Verdict::Refuse(errno)),
            Answer::Opened(file) => {
                let given = notifier.give(asked, file.as_fd(), descriptor_flags(&request.message));
                // A descriptor of ours that can write would make an exec of the file fail.
                drop(file);
                match given {
                    Ok(number) => notifier.answer(asked, Verdict::Answer(number)),
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        notifier.answer(asked, Verdict::Refuse(errno))
                    }
                }
            }
        }
    }

    /// Whether [`Self::tend`] has something to do that no wait tells of.
    pub(super) fn is_behind(&self) -> bool {
        self.guard.has_appeared()
    }

    /// Judges what appeared on the host; tells what was closed too late to be sure.
    pub(super) fn tend(&mut self) -> io::Result<Vec<Late>> {
        let mut late = Vec::new();
        for Appeared { tree: number, at, is_dir } in self.guard.appeared()? {
            let Some(tree) = self.trees.get_mut(number) else { continue };
            let (shown, too_late) = tree.judge(at, is_dir);
            late.extend(too_late);
            self.guard.show(number, shown)?;
        }
        if let Some(Unwatched { tree, dir }) = self.guard.unwatched()
            && let Some(tree) = self.trees.get(tree)
        {
            late.push(Late::Unwatched(tree.root.join(dir)));
        }
        Ok(late)
    }
}

fn in_memory(content: &[u8]) -> io::Result<OwnedFd> {
    let memory = memfd_create(c"kvro-content", MFdFlags::MFD_CLOEXEC)?;
    File::from(memory.try_clone()?).write_all(content)?;
    Ok(memory)
}

fn descriptor_flags(request: &ToGuard) -> FdFlag {
    if let ToGuard::Make { what: Making::File { flags, .. }, .. } = request
        && flags & libc::O_CLOEXEC != 0
    {
        return FdFlag::FD_CLOEXEC;
    }
    FdFlag::empty()
}

impl AsFd for NameJudge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guard.as_fd()
    }
}
