//! What becomes of a call, by where the names lie that it is about.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::sys::stat::FileStat;

use super::call::{Call, Naming};
use super::place::{Caller, Place, is_dir, is_link};
use super::{NameJudge, RefusedName};
use crate::guard::{At, Making, Standing, ToGuard};

/// Where a place lies.
enum Where {
    Outside,
    /// In a guarded directory.
    Guarded(At),
    /// In the tree, and not in a guarded directory.
    Free(At),
}

/// What to do about a call.
pub(super) enum Ruling {
    /// The kernel's own answer is the right one.
    GoOn,
    Refuse(i32),
    /// Refused by the policy, and worth recording.
    Closed(RefusedName),
    Ask(ToGuard),
    /// As [`ToGuard::Replace`] has it.
    Replace(ToGuard, Vec<u8>),
}

impl NameJudge {
    fn place(&self, place: &Place) -> Where {
        let Ok(dir) = place.dir.strip_prefix(&self.root) else { return Where::Outside };
        let at = At { dir: dir.to_owned(), name: place.name.clone() };
        if self.views.contains(dir) { Where::Guarded(at) } else { Where::Free(at) }
    }

    /// Both ends of a move or a link, and whether they lie on one mount that nothing guards. `None`
    /// if one is not in the tree: the kernel refuses to cross mounts.
    fn ends(&self, from: &Place, to: &Place) -> Option<(At, At, bool)> {
        match (self.place(from), self.place(to)) {
            (Where::Outside, _) | (_, Where::Outside) => None,
            (Where::Free(from), Where::Free(to)) => {
                let is_one = self.home(&from.dir) == self.home(&to.dir);
                Some((from, to, is_one))
            }
            (Where::Guarded(from) | Where::Free(from), Where::Guarded(to) | Where::Free(to)) => {
                Some((from, to, false))
            }
        }
    }

    fn is_closed(&self, at: &At) -> bool {
        matches!(self.names.standing(&at.path()), Standing::Hidden | Standing::Protected)
    }

    fn is_view(&self, at: &At) -> bool {
        self.views.contains(&at.path())
    }

    fn closed(at: &At, verb: &'static str) -> Ruling {
        Ruling::Closed(RefusedName { path: at.path(), verb })
    }

    pub(super) fn rule(&self, caller: Caller<'_>, call: Call) -> Ruling {
        let Call { naming, path, other } = call;
        if let (Naming::Link { flags: 1.. }, Some(to)) = (naming, &other) {
            let to = caller.locate(to.dir, &to.text);
            return to.map_or(Ruling::GoOn, |to| self.rule_naming(&to));
        }
        let Some(place) = caller.locate(path.dir, &path.text) else { return Ruling::GoOn };
        match naming {
            Naming::Open { flags, mode } => {
                let is_followed = flags & (libc::O_EXCL | libc::O_NOFOLLOW) == 0;
                let place = if is_followed { place.followed(caller) } else { Some(place) };
                let what = Making::File { flags, mode };
                place.map_or(Ruling::GoOn, |place| self.rule_making(caller, &place, what))
            }
            Naming::MakeDir { mode } => {
                let standing = Standing::Open;
                self.rule_making(caller, &place, Making::Dir { mode, standing })
            }
            // Devices are the kernel's to refuse: the view is read-only to it.
            Naming::MakeNode { mode }
                if matches!(mode & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK) =>
            {
                Ruling::GoOn
            }
            Naming::MakeNode { mode } => self.rule_making(caller, &place, Making::Node { mode }),
            Naming::Symlink => {
                let to = other.map(|to| to.text).unwrap_or_default();
                let to = OsString::from_vec(to).into();
                self.rule_making(caller, &place, Making::Symlink { to })
            }
            Naming::Remove { is_dir } => self.rule_removing(&place, is_dir),
            Naming::Rename { flags } => match other {
                Some(to) => match caller.locate(to.dir, &to.text) {
                    Some(to) => self.rule_moving(&place, &to, flags),
                    None => Ruling::GoOn,
                },
                None => Ruling::GoOn,
            },
            Naming::Link { .. } => match other {
                Some(to) => match caller.locate(to.dir, &to.text) {
                    Some(to) => self.rule_linking(&place, &to),
                    None => Ruling::GoOn,
                },
                None => Ruling::GoOn,
            },
        }
    }

    fn rule_making(&self, caller: Caller<'_>, place: &Place, mut what: Making) -> Ruling {
        let at = match self.place(place) {
            Where::Outside => return Ruling::GoOn,
            Where::Free(at) if self.is_closed(&at) => return Self::closed(&at, "create"),
            Where::Free(_) => return Ruling::GoOn,
            Where::Guarded(at) => at,
        };
        if place.stat().is_some() {
            return match what {
                Making::File { .. } => Ruling::GoOn,
                Making::Dir { .. } | Making::Symlink { .. } | Making::Node { .. } => {
                    Ruling::Refuse(libc::EEXIST)
                }
            };
        }
        let standing = self.names.standing(&at.path());
        let leads_astray = matches!(what, Making::Symlink { .. }) && standing == Standing::Leads;
        if leads_astray || matches!(standing, Standing::Hidden | Standing::Protected) {
            return Self::closed(&at, "create");
        }
        match &mut what {
            Making::File { .. } if place.ends_in_slash => return Ruling::Refuse(libc::EISDIR),
            Making::Symlink { .. } | Making::Node { .. } if place.ends_in_slash => {
                return Ruling::Refuse(libc::ENOENT);
            }
            Making::Dir { mode, standing: of_dir } => {
                *mode &= !caller.umask();
                // What was guarded once is guarded again.
                *of_dir = if self.is_view(&at) { Standing::Leads } else { standing };
            }
            Making::File { mode, .. } | Making::Node { mode } => *mode &= !caller.umask(),
            Making::Symlink { .. } => {}
        }
        Ruling::Ask(ToGuard::Make { at, what })
    }

    fn rule_removing(&self, place: &Place, of_dir: bool) -> Ruling {
        match self.place(place) {
            Where::Outside => Ruling::GoOn,
            Where::Free(at) if self.is_closed(&at) => Self::closed(&at, "remove"),
            Where::Free(_) => Ruling::GoOn,
            Where::Guarded(_) if place.stat().is_none() => Ruling::Refuse(libc::ENOENT),
            // A guarded directory goes like any other, once it is really empty.
            Where::Guarded(at) if self.is_closed(&at) || self.is_view(&at) && !of_dir => {
                Self::closed(&at, "remove")
            }
            Where::Guarded(_) if place.ends_in_slash && !of_dir => {
                let is_dir = place.stat().is_some_and(|stat| is_dir(&stat));
                Ruling::Refuse(if is_dir { libc::EISDIR } else { libc::ENOTDIR })
            }
            Where::Guarded(at) => Ruling::Ask(ToGuard::Remove { at, is_dir: of_dir }),
        }
    }

    fn rule_moving(&self, from: &Place, to: &Place, flags: u32) -> Ruling {
        let Some((from_at, to_at, is_free)) = self.ends(from, to) else { return Ruling::GoOn };
        let Some(stat) = from.stat() else { return Ruling::Refuse(libc::ENOENT) };
        if flags == 0
            && !is_free
            && !self.is_closed(&from_at)
            && let Some(content) = self.names.replacement(&from_at.path(), &to_at.path())
        {
            return Ruling::Replace(ToGuard::Replace { from: from_at, to: to_at }, content);
        }
        for at in [&from_at, &to_at] {
            if self.is_closed(at) || self.is_view(at) {
                return Self::closed(at, "rename");
            }
        }
        let back = to.stat().filter(|_| flags & libc::RENAME_EXCHANGE != 0);
        for (stat, at) in [(Some(&stat), &to_at), (back.as_ref(), &from_at)] {
            if stat.is_some_and(|stat| self.brings_closed(stat, at)) {
                return Self::closed(at, "rename");
            }
        }
        if is_free {
            return Ruling::GoOn;
        }
        let comes = back.as_ref().unwrap_or(&stat);
        if from.ends_in_slash && !is_dir(&stat) || to.ends_in_slash && !is_dir(comes) {
            return Ruling::Refuse(libc::ENOTDIR);
        }
        if flags & libc::RENAME_WHITEOUT != 0 {
            return Ruling::Refuse(libc::EINVAL);
        }
        Ruling::Ask(ToGuard::Rename { from: from_at, to: to_at, flags })
    }

    fn rule_linking(&self, from: &Place, to: &Place) -> Ruling {
        let Some((from_at, to_at, is_free)) = self.ends(from, to) else { return Ruling::GoOn };
        for at in [&from_at, &to_at] {
            if self.is_closed(at) {
                return Self::closed(at, "link");
            }
        }
        let Some(stat) = from.stat() else { return Ruling::Refuse(libc::ENOENT) };
        if self.brings_closed(&stat, &to_at) {
            return Self::closed(&to_at, "link");
        }
        if is_free {
            return Ruling::GoOn;
        }
        if from.ends_in_slash && !is_dir(&stat) {
            return Ruling::Refuse(libc::ENOTDIR);
        }
        if to.stat().is_some() {
            return Ruling::Refuse(libc::EEXIST);
        }
        if to.ends_in_slash {
            return Ruling::Refuse(libc::ENOENT);
        }
        Ruling::Ask(ToGuard::Link { from: from_at, to: to_at })
    }

    /// A new name for what a descriptor or a link stands for: the kernel refuses it in a guarded
    /// directory and across mounts, and knows nothing of names.
    fn rule_naming(&self, to: &Place) -> Ruling {
        match self.place(to) {
            Where::Guarded(at) | Where::Free(at) if self.is_closed(&at) => {
                Self::closed(&at, "link")
            }
            Where::Guarded(_) | Where::Free(_) | Where::Outside => Ruling::GoOn,
        }
    }

    /// Whether what is in a directory, or where a link leads, would come to lie under closed names.
    fn brings_closed(&self, stat: &FileStat, to: &At) -> bool {
        (is_dir(stat) || is_link(stat)) && self.names.standing(&to.path()) == Standing::Leads
    }

    /// The mount that a free directory lies on: the name under its innermost guarded directory.
    fn home<'d>(&self, dir: &'d Path) -> Option<&'d Path> {
        dir.ancestors().take_while(|above| !self.views.contains(*above)).last()
    }
}
