//! The guard's process: serves the supervisor and follows the host until the supervisor is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat, mknodat, umask};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::far::FarWatch;
use super::host::{Changes, HostWatch};
use super::secrets::Secrets;
use super::tree::{Cover, Tree, is_kind};
use super::wire::{At, FromGuard, Making, Standing, ToGuard};
use crate::creds;
use crate::identity;
use crate::plan::{Guarded, Identity, ShownAs, Stretch};
use crate::stage::{die_with_supervisor, single};
use crate::step::{During, Step, StepFailed};
use crate::sys;
use crate::wire::Channel;

/// Beside a hidden name, a new name of the host's is shown this late: an editor writes what it saves under a name of its
/// own first, and what it saves may be a secret.
const HELD_BACK: Duration = Duration::from_millis(200);

/// What a hidden name shows that came to a directory which is not guarded.
const LATE: &str = "# kvro-jail: this file is hidden from the jail by the policy ([fs] hide).\n";

/// So many questions are open at most: with more, both sides could wait for room in the other's
/// socket.
const AT_ONCE: usize = 64;

/// Makes this process the guard of the jail whose pid 1 is `pid_1`: in its user and mount
/// namespaces, with the agent's user and the one capability that mounting takes.
pub(crate) fn enter(
    pid_1: libc::pid_t,
    identity: Identity,
    channel: &Channel,
) -> Result<(), StepFailed> {
    let enter = || -> io::Result<()> {
        let pidfd = sys::open_pidfd(pid_1)?;
        sys::join_user_and_mount_namespaces(pidfd.as_fd())?;
        identity::become_inside(identity)?;
        die_with_supervisor(channel)?;
        creds::keep_mounting()?;
        prctl::set_dumpable(false)?;
        umask(Mode::empty());
        Ok(())
    };
    enter().during(|| Step::EnterGuard)
}

/// The guard, ready to serve.
#[derive(Debug)]
pub(crate) struct Guard {
    tree: Tree,
    host: HostWatch,
    far: FarWatch,
    /// The guarded directories.
    views: BTreeMap<PathBuf, Stretch>,
    /// Names that show a decoy, whatever is really there.
    covered: BTreeSet<PathBuf>,
    /// What lies, or lay, at hidden names.
    secrets: Secrets,
    /// Directories with a hidden name, where something new may be a secret on its way.
    secretive: BTreeSet<PathBuf>,
    /// What the supervisor was asked about.
    asked: BTreeSet<At>,
    /// When to ask about what is new.
    held: BTreeMap<At, Instant>,
}

impl Guard {
    pub(crate) fn new(tree: Tree, guarded: &Guarded) -> io::Result<Self> {
        let views = guarded.views.iter().map(|view| (view.path.clone(), view.stretch)).collect();
        let covered = guarded.views.iter().flat_map(|view| {
            let covered = view.names.iter().filter(|shown| shown.shown == ShownAs::Covered);
            covered.map(|shown| view.path.join(&shown.name))
        });
        let covered: BTreeSet<PathBuf> = covered.collect();
        let secretive = covered.iter().filter_map(|path| path.parent()).map(Path::to_owned);
        let secretive = secretive.collect();
        let mut far = FarWatch::new(guarded.suspects.clone())?;
        for view in &guarded.views {
            let shown = view.names.iter().filter(|shown| shown.shown == ShownAs::Open);
            shown.for_each(|shown| far.add(view.path.join(&shown.name)));
        }
        Ok(Self {
            tree,
            host: HostWatch::new()?,
            far,
            views,
            covered,
            secrets: Secrets::default(),
            secretive,
            asked: BTreeSet::new(),
            held: BTreeMap::new(),
        })
    }

    /// Watches every guarded directory; what changed during the launch is looked at again.
    pub(crate) fn watch(&mut self) -> Result<(), StepFailed> {
        let dirs: Vec<PathBuf> = self.views.keys().cloned().collect();
        for dir in &dirs {
            let mut watch = || -> io::Result<()> {
                let real = self.tree.real_dir(dir)?;
                self.host.watch(dir, &real).map(drop)
            };
            watch().during(|| Step::Guard(dir.clone()))?;
        }
        Ok(())
    }

    /// Serves until the supervisor is gone.
    pub(crate) fn serve(mut self, channel: &Channel) -> io::Result<()> {
        self.look_everywhere(channel)?;
        loop {
            let mut waits = [
                PollFd::new(channel.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.host.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.far.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut waits, self.patience()) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            let (asked, changed) = (waits[0].any().unwrap_or(true), waits[1].any().unwrap_or(true));
            if asked {
                match channel.receive::<ToGuard>()? {
                    None => return Ok(()),
                    Some((request, fds)) => self.obey(request, fds, channel)?,
                }
            }
            if changed {
                match self.host.changes()? {
                    Changes::Unknown => self.look_everywhere(channel)?,
                    Changes::Names(names) => {
                        for (dir, name) in names {
                            self.look(At { dir, name }, channel)?;
                        }
                    }
                }
            }
            self.look_far(channel)?;
            self.ask_what_is_due(channel)?;
        }
    }

    /// Follows what happens beyond the guarded directories, a little at a time.
    fn look_far(&mut self, channel: &Channel) -> io::Result<()> {
        let appeared = self.far.appeared()?;
        let (tree, views) = (&self.tree, &self.views);
        let is_guarded = |dir: &Path| views.contains_key(dir);
        let looked = self.far.look_on(|dir| tree.real_dir(dir), is_guarded)?;
        for at in appeared.suspects.into_iter().chain(looked.suspects) {
            if !self.views.contains_key(&at.dir) {
                self.ask(at, channel)?;
            }
        }
        if let Some(dir) = looked.unwatched {
            channel.send(&FromGuard::Unwatched { dir }, &[])?;
        }
        Ok(())
    }

    fn patience(&self) -> PollTimeout {
        if self.far.is_behind() {
            return PollTimeout::ZERO;
        }
        let Some(next) = self.held.values().min() else { return PollTimeout::NONE };
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    fn ask_what_is_due(&mut self, channel: &Channel) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<At> =
            self.held.iter().filter(|(_, at)| **at <= now).map(|(at, _)| at.clone()).collect();
        for at in due {
            self.held.remove(&at);
            self.ask(at, channel)?;
        }
        Ok(())
    }

    fn look_everywhere(&mut self, channel: &Channel) -> io::Result<()> {
        let dirs: Vec<PathBuf> = self.views.keys().cloned().collect();
        dirs.into_iter().try_for_each(|dir| self.look_through(&dir, channel))
    }

    fn look_through(&mut self, dir: &Path, channel: &Channel) -> io::Result<()> {
        let mut names: BTreeSet<PathBuf> = self.tree.real_names(dir)?.into_iter().collect();
        names.extend(self.tree.names(dir)?);
        for name in names {
            self.look(At { dir: dir.to_owned(), name }, channel)?;
        }
        Ok(())
    }

    /// Looks at a name. What cannot be looked at is not shown.
    fn look(&mut self, at: At, channel: &Channel) -> io::Result<()> {
        match self.try_look(at.clone(), channel) {
            Err(error) if is_about_the_name(&error) => self.give_up(&at),
            looked => looked,
        }
    }

    /// Shows nothing at a name that cannot be opened or mounted.
    fn give_up(&self, at: &At) -> io::Result<()> {
        match self.tree.hide(&at.dir, at.name.as_os_str()) {
            Err(error) if is_about_the_name(&error) => Ok(()),
            hidden => hidden,
        }
    }

    /// Brings the view in line with what the host has at a name, or asks what may be shown.
    fn try_look(&mut self, at: At, channel: &Channel) -> io::Result<()> {
        let path = at.path();
        let real = self.tree.real(&at.dir, at.name.as_os_str())?;
        if self.views.contains_key(&path) {
            return self.look_at_view(&path, real.as_ref(), channel);
        }
        if self.covered.contains(&path) {
            return real.map_or(Ok(()), |real| self.secrets.keep(&real));
        }
        let Some(real) = real else {
            self.held.remove(&at);
            return self.tree.hide(&at.dir, at.name.as_os_str());
        };
        if self.tree.is_shown(&at.dir, at.name.as_os_str(), &real)? {
            self.held.remove(&at);
            return Ok(());
        }
        if self.tree.has_place(&at.dir, at.name.as_os_str())? {
            return self.ask(at, channel);
        }
        if !self.secretive.contains(&at.dir) {
            return self.ask(at, channel);
        }
        self.held.entry(at).or_insert_with(|| Instant::now() + HELD_BACK);
        Ok(())
    }

    /// A guarded directory stays one under its name, whichever directory the host puts there.
    fn look_at_view(
        &mut self,
        dir: &Path,
        real: Option<&OwnedFd>,
        channel: &Channel,
    ) -> io::Result<()> {
        let is_dir = match real {
            Some(real) => is_kind(&fstat(real)?, libc::S_IFDIR),
            None => false,
        };
        match real {
            Some(real) if is_dir => {
                if self.host.watch(dir, real)? {
                    self.tree.make_view(dir)?;
                    self.look_through(dir, channel)?;
                    let below: Vec<PathBuf> = self
                        .views
                        .keys()
                        .filter(|view| view.parent() == Some(dir))
                        .cloned()
                        .collect();
                    for view in below {
                        let name = view.file_name().unwrap_or_default();
                        let real = self.tree.real(dir, name)?;
                        self.look_at_view(&view, real.as_ref(), channel)?;
                    }
                }
                Ok(())
            }
            _ => self.empty(dir),
        }
    }

    /// Shows nothing in a guarded directory that is gone, and not the directory either.
    fn empty(&mut self, dir: &Path) -> io::Result<()> {
        let Ok(names) = self.tree.names(dir) else { return Ok(()) };
        for name in names {
            let path = dir.join(&name);
            if self.views.contains_key(&path) {
                self.empty(&path)?;
            } else if !self.covered.contains(&path) {
                self.tree.hide(dir, name.as_os_str())?;
            }
        }
        self.host.forget(dir);
        match (dir.parent(), dir.file_name()) {
            // A decoy keeps its directory.
            (Some(parent), Some(name)) => match self.tree.hide(parent, name) {
                Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => Ok(()),
                hidden => hidden,
            },
            _ => Ok(()),
        }
    }

    fn ask(&mut self, at: At, channel: &Channel) -> io::Result<()> {
        if self.asked.contains(&at) {
            return Ok(());
        }
        if self.asked.len() >= AT_ONCE {
            self.held.entry(at).or_insert_with(Instant::now);
            return Ok(());
        }
        self.asked.insert(at.clone());
        let real = self.tree.real(&at.dir, at.name.as_os_str())?;
        let is_dir = match &real {
            Some(real) => is_kind(&fstat(real)?, libc::S_IFDIR),
            None => false,
        };
        channel.send(&FromGuard::Appeared { at, is_dir }, &[])
    }

    fn obey(&mut self, request: ToGuard, fds: Vec<OwnedFd>, channel: &Channel) -> io::Result<()> {
        if let ToGuard::Show { at, standing, views } = request {
            return self.show_judged(&at, standing, &views, channel);
        }
        let answer = match self.perform(request, fds, channel) {
            Ok(Performed::Done) => FromGuard::Done,
            Ok(Performed::IsThere) => FromGuard::IsThere,
            Ok(Performed::Opened(file)) => {
                return channel.send(&FromGuard::Opened, &[file.as_fd()]);
            }
            Err(error) => FromGuard::Failed { errno: error.raw_os_error().unwrap_or(libc::EIO) },
        };
        channel.send(&answer, &[])
    }

    /// Shows what appeared as the supervisor judged it.
    fn show_judged(
        &mut self,
        at: &At,
        standing: Standing,
        views: &[PathBuf],
        channel: &Channel,
    ) -> io::Result<()> {
        self.asked.remove(at);
        let shown = self.try_show(at, standing, views, channel);
        match shown {
            // What is gone again is not shown; the host's next change is looked at in its turn.
            Err(error) if is_about_the_name(&error) => self.give_up(at),
            other => other,
        }
    }

    fn try_show(
        &mut self,
        at: &At,
        standing: Standing,
        views: &[PathBuf],
        channel: &Channel,
    ) -> io::Result<()> {
        let name = at.name.as_os_str();
        let real = self.tree.real(&at.dir, name)?;
        if let (Standing::Hidden, Some(real)) = (standing, &real) {
            self.secrets.keep(real)?;
        }
        let Some(outer) = self.views.get(&at.dir).copied() else {
            return match standing {
                Standing::Hidden => self.tree.cover(&at.dir, name, Cover::Decoy(LATE)),
                Standing::Protected => self.tree.cover(&at.dir, name, Cover::ReadOnly),
                Standing::Open | Standing::Leads => Ok(()),
            };
        };
        let stretch = match standing {
            Standing::Hidden => {
                self.secretive.insert(at.dir.clone());
                return self.tree.hide(&at.dir, name);
            }
            Standing::Protected => Stretch::ReadOnly,
            Standing::Open | Standing::Leads => outer,
        };
        let Some(real) = real else {
            return self.tree.hide(&at.dir, name);
        };
        // Defence::Guard: guard::what_the_host_gives_a_hidden_name_is_gone.
        if self.secrets.is_one(&real)? {
            return self.tree.hide(&at.dir, name);
        }
        if views.is_empty() || !is_kind(&fstat(&real)?, libc::S_IFDIR) {
            self.tree.show(&at.dir, name, &real, stretch)?;
            self.far.add(at.path());
            return Ok(());
        }
        for view in views {
            self.add_view(view, stretch)?;
        }
        views.iter().try_for_each(|view| self.look_through(view, channel))
    }

    fn add_view(&mut self, dir: &Path, stretch: Stretch) -> io::Result<()> {
        self.views.insert(dir.to_owned(), stretch);
        self.tree.make_view(dir)?;
        let real = self.tree.real_dir(dir)?;
        self.host.watch(dir, &real).map(drop)
    }

    fn perform(
        &mut self,
        request: ToGuard,
        fds: Vec<OwnedFd>,
        channel: &Channel,
    ) -> io::Result<Performed> {
        match request {
            ToGuard::Make { at, what } => self.make(&at, what),
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

    fn make(&mut self, at: &At, what: Making) -> io::Result<Performed> {
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
        self.held.remove(at);
        let name: &OsStr = at.name.as_os_str();
        match self.tree.real(&at.dir, name)? {
            None => self.tree.hide(&at.dir, name),
            Some(real) if self.tree.is_shown(&at.dir, name, &real)? => Ok(()),
            Some(real) => {
                self.tree.show(&at.dir, name, &real, stretch)?;
                self.far.add(at.path());
                Ok(())
            }
        }
    }
}

/// Errors that say something about one name, and nothing about the guard.
fn is_about_the_name(error: &io::Error) -> bool {
    const OF_NAMES: [i32; 10] = [
        libc::EACCES,
        libc::EINVAL,
        libc::ELOOP,
        libc::ENAMETOOLONG,
        libc::ENOENT,
        libc::ENOTDIR,
        libc::ENOTEMPTY,
        libc::ENXIO,
        libc::EPERM,
        libc::ESTALE,
    ];
    error.raw_os_error().is_some_and(|errno| OF_NAMES.contains(&errno))
}

/// What became of a request.
enum Performed {
    Done,
    IsThere,
    Opened(OwnedFd),
}

/// Set-id bits are never made: they would be the host's programs.
fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o1777)
}
