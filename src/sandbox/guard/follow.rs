//! Follows the host: what it changes is looked at, judged by the supervisor, and shown.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::stat::fstat;

use super::far::Looked;
use super::process::Guard;
use super::tree::{Cover, is_kind};
use super::wire::{At, FromGuard, Standing};
use crate::plan::Stretch;
use crate::wire::Channel;

/// Beside a hidden name, a new name of the host's is shown this late: an editor writes what it saves
/// under a name of its own first, and what it saves may be a secret.
const HELD_BACK: Duration = Duration::from_millis(200);

/// What a hidden name shows that came to a directory which is not guarded.
const LATE: &str = "# kvro-jail: this file is hidden from the jail by the policy ([fs] hide).\n";

/// So many questions are open at most: with more, both sides could wait for room in the other's
/// socket.
const AT_ONCE: usize = 64;

impl Guard {
    pub(super) fn look_everywhere(&mut self, channel: &Channel) -> io::Result<()> {
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
    pub(super) fn look(&mut self, at: At, channel: &Channel) -> io::Result<()> {
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
            self.held.forget(&at);
            return self.tree.hide(&at.dir, at.name.as_os_str());
        };
        if self.tree.is_shown(&at.dir, at.name.as_os_str(), &real)? {
            self.held.forget(&at);
            return Ok(());
        }
        if self.tree.has_place(&at.dir, at.name.as_os_str())? {
            return self.ask(at, channel);
        }
        if !self.secretive.contains(&at.dir) {
            return self.ask(at, channel);
        }
        self.held.hold(at, Instant::now() + HELD_BACK);
        Ok(())
    }

    /// A guarded directory stays one under its name, whichever directory the host puts there.
    fn look_at_view(
        &mut self,
        dir: &Path,
        real: Option<&OwnedFd>,
        channel: &Channel,
    ) -> io::Result<()> {
        match real {
            Some(real) if is_dir(real)? => {
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
    pub(super) fn empty(&mut self, dir: &Path) -> io::Result<()> {
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

    /// Follows what happens beyond the guarded directories, a little at a time.
    pub(super) fn look_far(&mut self, channel: &Channel) -> io::Result<()> {
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
            self.tell(FromGuard::Unwatched { dir }, &[], channel)?;
        }
        Ok(())
    }

    fn ask(&mut self, at: At, channel: &Channel) -> io::Result<()> {
        if self.asked.contains(&at) {
            return Ok(());
        }
        if !self.may_ask() {
            self.held.hold(at, Instant::now());
            return Ok(());
        }
        self.asked.insert(at.clone());
        let real = self.tree.real(&at.dir, at.name.as_os_str())?;
        let is_dir = real.as_ref().map_or(Ok(false), is_dir)?;
        self.tell(FromGuard::Appeared { at, is_dir }, &[], channel)
    }

    /// Whether one more question may be open.
    pub(super) fn may_ask(&self) -> bool {
        self.asked.len() < AT_ONCE
    }

    pub(super) fn ask_what_is_due(&mut self, channel: &Channel) -> io::Result<()> {
        let now = Instant::now();
        while self.may_ask()
            && let Some(at) = self.held.take_due(now)
        {
            self.ask(at, channel)?;
        }
        Ok(())
    }

    /// Shows what appeared as the supervisor judged it.
    pub(super) fn show_judged(
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
        if views.is_empty() || !is_dir(&real)? {
            return self.show(at, &real, stretch);
        }
        for view in views {
            self.add_view(view, stretch)?;
        }
        views.iter().try_for_each(|view| self.look_through(view, channel))
    }

    /// Shows `real` at a name; what is in it is watched by and by.
    pub(super) fn show(&mut self, at: &At, real: &OwnedFd, stretch: Stretch) -> io::Result<()> {
        self.tree.show(&at.dir, at.name.as_os_str(), real, stretch)?;
        self.far.add(at.path(), Looked::Never);
        Ok(())
    }

    pub(super) fn add_view(&mut self, dir: &Path, stretch: Stretch) -> io::Result<()> {
        self.views.insert(dir.to_owned(), stretch);
        self.tree.make_view(dir)?;
        let real = self.tree.real_dir(dir)?;
        self.host.watch(dir, &real).map(drop)
    }
}

fn is_dir(real: &OwnedFd) -> io::Result<bool> {
    Ok(is_kind(&fstat(real)?, libc::S_IFDIR))
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
