//! Does what the supervisor allowed: on the real tree, with the agent's rights, and then in the view.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::socket::{UnixAddr, bind};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat, umask};
use nix::unistd::{UnlinkatFlags, chdir, fchdir, linkat, symlinkat, unlinkat};

use super::process::Guard;
use super::wire::{At, Making, Standing, ToGuard};
use crate::plan::Stretch;
use crate::stage::single;
use crate::wire::Channel;

impl Guard {
    pub(super) fn perform(
        &mut self,
        request: ToGuard,
        fds: Vec<OwnedFd>,
        channel: &Channel,
    ) -> io::Result<Performed> {
        match request {
            ToGuard::Make { at, what } => self.make(&at, what, fds),
            ToGuard::Remove { at, is_dir } => {
                let flag =
                    if is_dir { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
                let dir = self.writable(&at.dir)?;
                unlinkat(&dir, at.name.as_os_str(), flag)?;
                if self.views.contains_key(&at.path()) {
                    self.empty(&at.path())?;
                } else {
                    self.settle(&at)?;
                }
                Ok(Performed::Done)
            }
            ToGuard::Rename { from, to, flags } => {
                let (a, b) = (self.writable(&from.dir)?, self.writable(&to.dir)?);
                let flags = RenameFlags::from_bits_truncate(flags);
                renameat2(&a, from.name.as_os_str(), &b, to.name.as_os_str(), flags)?;
                self.settle(&to)?;
                self.settle(&from)?;
                Ok(Performed::Done)
            }
            ToGuard::Link { from, to } => {
                let (a, b) = (self.writable(&from.dir)?, self.writable(&to.dir)?);
                linkat(&a, from.name.as_os_str(), &b, to.name.as_os_str(), AtFlags::empty())?;
                self.settle(&to)?;
                Ok(Performed::Done)
            }
            ToGuard::Replace { from, to } => {
                let content = File::from(single(fds)?);
                self.replace(&from, &to, content)?;
                Ok(Performed::Done)
            }
            ToGuard::Show { at, standing, views } => {
                self.show_judged(&at, standing, &views, channel)?;
                Ok(Performed::Done)
            }
        }
    }

    /// Puts a file with `content` at `to`, as a rename of `from` would have done. A crash half way
    /// leaves what a crashed writer leaves: its file under the name that it chose.
    fn replace(&mut self, from: &At, to: &At, mut content: File) -> io::Result<()> {
        let (a, b) = (self.writable(&from.dir)?, self.writable(&to.dir)?);
        let mode = match self.tree.real(&to.dir, to.name.as_os_str())? {
            Some(before) => fstat(&before)?.st_mode,
            None => 0o644,
        };
        unlinkat(&a, from.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?;
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(&a, from.name.as_os_str(), flags, permissions(mode))?;
        let mut file = File::from(file);
        content.rewind()?;
        io::copy(&mut content, &mut file)?;
        file.sync_data()?;
        renameat2(&a, from.name.as_os_str(), &b, to.name.as_os_str(), RenameFlags::empty())?;
        if let Some(real) = self.tree.real(&to.dir, to.name.as_os_str())? {
            self.tree.show(&to.dir, to.name.as_os_str(), &real, Stretch::ReadOnly)?;
        }
        self.settle(from)
    }

    fn make(&mut self, at: &At, what: Making, fds: Vec<OwnedFd>) -> io::Result<Performed> {
        let (dir, name) = (self.writable(&at.dir)?, at.name.as_os_str());
        match what {
            Making::File { flags, mode } => {
                let wanted = OFlag::from_bits_truncate(flags);
                let flags = (wanted - OFlag::O_TRUNC)
                    | OFlag::O_CREAT
                    | OFlag::O_EXCL
                    | OFlag::O_NOFOLLOW
                    | OFlag::O_CLOEXEC;
                match openat(&dir, name, flags, permissions(mode)) {
                    Ok(file) => {
                        self.settle(at)?;
                        Ok(Performed::Opened(file))
                    }
                    Err(Errno::EEXIST) if !wanted.contains(OFlag::O_EXCL) => Ok(Performed::IsThere),
                    Err(other) => Err(other.into()),
                }
            }
            Making::Dir { mode, standing } => {
                mkdirat(&dir, name, permissions(mode))?;
                match standing {
                    Standing::Leads => self.add_view(&at.path(), Stretch::ReadWrite)?,
                    Standing::Open | Standing::Hidden | Standing::Protected => self.settle(at)?,
                }
                Ok(Performed::Done)
            }
            Making::Symlink { to } => {
                symlinkat(to.as_os_str(), &dir, name)?;
                self.settle(at)?;
                Ok(Performed::Done)
            }
            Making::Node { mode } => {
                let kind = SFlag::from_bits_truncate(mode & libc::S_IFMT);
                mknodat(&dir, name, kind, permissions(mode), 0)?;
                self.settle(at)?;
                Ok(Performed::Done)
            }
            Making::Socket { umask } => {
                bind_in(&dir, name, &single(fds)?, umask)?;
                self.settle(at)?;
                Ok(Performed::Done)
            }
        }
    }

    /// The real directory `dir`, if the agent may change what is in it.
    fn writable(&self, dir: &Path) -> io::Result<OwnedFd> {
        match self.views.get(dir) {
            Some(Stretch::ReadOnly) => Err(io::Error::from_raw_os_error(libc::EROFS)),
            Some(Stretch::ReadWrite) | None => self.tree.real_dir(dir),
        }
    }

    /// Shows what the agent just did. The supervisor has judged the name.
    fn settle(&mut self, at: &At) -> io::Result<()> {
        let Some(stretch) = self.views.get(&at.dir).copied() else { return Ok(()) };
        self.held.forget(at);
        let name: &OsStr = at.name.as_os_str();
        match self.tree.real(&at.dir, name)? {
            None => self.tree.hide(&at.dir, name),
            Some(real) if self.tree.is_shown(&at.dir, name, &real)? => Ok(()),
            Some(real) => self.show(at, &real, stretch),
        }
    }
}

/// Gives `socket` a name in `dir`, whose own path may be longer than an address.
///
/// The mode is that of the socket, on which the program may have set it (unix(7)).
fn bind_in(dir: &OwnedFd, name: &OsStr, socket: &OwnedFd, mask: u32) -> io::Result<()> {
    let address = UnixAddr::new(name)?;
    fchdir(dir)?;
    umask(Mode::from_bits_truncate(mask));
    let bound = bind(socket.as_raw_fd(), &address);
    umask(Mode::empty());
    chdir("/")?;
    Ok(bound?)
}

/// What became of a request.
pub(super) enum Performed {
    Done,
    IsThere,
    Opened(OwnedFd),
}

/// Set-id bits are never made: they would be the host's programs.
fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o1777)
}
