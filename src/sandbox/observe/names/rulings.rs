//! What becomes of a call, by where the names lie that it is about.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::sys::stat::FileStat;

use super::call::{Call, Naming, changes};
use super::place::{Caller, Place, is_dir, is_link};
use super::{GuardedTree, NameJudge, RefusedName};
use crate::guard::{About, At, Making, Standing, ToGuard};

/// A name in a guarded tree.
struct Spot<'t> {
    tree: &'t GuardedTree,
    at: At,
}

/// Where a place lies.
enum Where<'t> {
    Outside,
    /// In a guarded directory.
    Guarded(Spot<'t>),
    /// In a guarded tree, and not in a guarded directory.
    Free(Spot<'t>),
}

/// What to do about a call.
pub(super) enum Ruling {
    /// The kernel's own answer is the right one.
    GoOn,
    Refuse(i32),
    /// Refused by the policy with this errno, and worth recording.
    Closed(RefusedName, i32),
    Ask(About<ToGuard>),
    /// The same, about the caller's socket of this number.
    Bind(About<ToGuard>, i32),
    /// As [`ToGuard::Replace`] has it.
    Replace(About<ToGuard>, Vec<u8>),
}

/// Both ends of a move or a link, in one tree.
struct Ends<'t> {
    from: Spot<'t>,
    to: Spot<'t>,
    /// Whether they lie on one mount that nothing guards.
    is_free: bool,
}

impl Spot<'_> {
    fn standing(&self) -> Standing {
        self.tree.names.standing(&self.at.path())
    }

    fn is_closed(&self) -> bool {
        self.standing().is_closed()
    }

    fn is_view(&self) -> bool {
        self.tree.views.contains(&self.at.path())
    }

    fn refused(&self, verb: &'static str, errno: i32) -> Ruling {
        Ruling::Closed(RefusedName { path: self.tree.root.join(self.at.path()), verb }, errno)
    }

    fn closed(&self, verb: &'static str) -> Ruling {
        self.refused(verb, libc::EACCES)
    }

    /// Whether what is in a directory, or where a link leads, would come to lie under closed names.
    fn brings_closed(&self, stat: &FileStat, to: &Self) -> bool {
        let (is_dir, is_link) = (is_dir(stat), is_link(stat));
        (is_dir || is_link) && to.standing() == Standing::Leads
            || is_dir && self.tree.names.brings_closed(&self.at.path(), &to.at.path())
    }

    /// The mount that this lies on: the name under its innermost guarded directory.
    fn home(&self) -> Option<&Path> {
        let views = &self.tree.views;
        self.at.dir.ancestors().take_while(|above| !views.contains(*above)).last()
    }
}

impl NameJudge {
    fn place(&self, place: &Place) -> Where<'_> {
        let below = |tree: &'_ GuardedTree| place.dir.strip_prefix(&tree.root).ok();
        let Some((tree, dir)) = self.trees.iter().find_map(|tree| Some((tree, below(tree)?)))
        else {
            return Where::Outside;
        };
        let spot = Spot { tree, at: At { dir: dir.to_owned(), name: place.name.clone() } };
        if tree.views.contains(dir) { Where::Guarded(spot) } else { Where::Free(spot) }
    }

    /// `None` if both ends are not in one tree: the kernel refuses to cross mounts.
    fn ends(&self, from: &Place, to: &Place) -> Option<Ends<'_>> {
        let (from, to, may_be_free) = match (self.place(from), self.place(to)) {
            (Where::Outside, _) | (_, Where::Outside) => return None,
            (Where::Free(from), Where::Free(to)) => (from, to, true),
            (Where::Guarded(from) | Where::Free(from), Where::Guarded(to) | Where::Free(to)) => {
                (from, to, false)
            }
        };
        let is_free = may_be_free && from.home() == to.home();
        (from.tree.number == to.tree.number).then_some(Ends { from, to, is_free })
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
                place.map_or(Ruling::GoOn, |place| self.rule_opening(caller, &place, flags, mode))
            }
            Naming::Bind { socket } => self.rule_binding(caller, &place, socket),
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

    fn rule_opening(&self, caller: Caller<'_>, place: &Place, flags: i32, mode: u32) -> Ruling {
        let (spot, is_guarded) = match self.place(place) {
            Where::Outside => return Ruling::GoOn,
            Where::Free(spot) => (spot, false),
            Where::Guarded(spot) => (spot, true),
        };
        // What the mount would answer: it is the wall, and this puts the refusal on record.
        let errno = match spot.standing() {
            Standing::Hidden => Some(libc::EACCES),
            Standing::Protected => Some(libc::EROFS),
            Standing::Open | Standing::Leads if !is_guarded => return Ruling::GoOn,
            Standing::Open | Standing::Leads => None,
        };
        let is_about_it = changes(flags) && flags & libc::O_EXCL == 0;
        match errno.filter(|_| is_about_it && place.stat().is_some()) {
            Some(errno) => spot.refused("open", errno),
            None if flags & libc::O_CREAT == 0 => Ruling::GoOn,
            None if is_guarded => make(caller, place, spot, Making::File { flags, mode }),
            None => spot.closed("create"),
        }
    }

    fn rule_binding(&self, caller: Caller<'_>, place: &Place, socket: i32) -> Ruling {
        let ruling = self.rule_making(caller, place, Making::Socket { umask: 0 });
        if let Ruling::Refuse(libc::EEXIST) = ruling {
            return Ruling::Refuse(libc::EADDRINUSE);
        }
        if let Ruling::Ask(request) = ruling { Ruling::Bind(request, socket) } else { ruling }
    }

    fn rule_making(&self, caller: Caller<'_>, place: &Place, what: Making) -> Ruling {
        match self.place(place) {
            Where::Outside => Ruling::GoOn,
            Where::Free(spot) if spot.is_closed() => spot.closed("create"),
            Where::Free(_) => Ruling::GoOn,
            Where::Guarded(spot) => make(caller, place, spot, what),
        }
    }

    fn rule_removing(&self, place: &Place, of_dir: bool) -> Ruling {
        match self.place(place) {
            Where::Outside => Ruling::GoOn,
            Where::Free(spot) if spot.is_closed() => spot.closed("remove"),
            Where::Free(_) => Ruling::GoOn,
            Where::Guarded(_) if place.stat().is_none() => Ruling::Refuse(libc::ENOENT),
            // A guarded directory goes like any other, once it is really empty.
            Where::Guarded(spot) if spot.is_closed() || spot.is_view() && !of_dir => {
                spot.closed("remove")
            }
            Where::Guarded(_) if place.ends_in_slash && !of_dir => {
                let is_dir = place.stat().is_some_and(|stat| is_dir(&stat));
                Ruling::Refuse(if is_dir { libc::EISDIR } else { libc::ENOTDIR })
            }
            Where::Guarded(spot) => {
                Ruling::Ask(spot.tree.ask(ToGuard::Remove { at: spot.at, is_dir: of_dir }))
            }
        }
    }

    fn rule_moving(&self, from: &Place, to: &Place, flags: u32) -> Ruling {
        let Some(ends) = self.ends(from, to) else { return Ruling::GoOn };
        let Ends { from: source, to: target, is_free } = ends;
        let Some(stat) = from.stat() else { return Ruling::Refuse(libc::ENOENT) };
        let tree = source.tree;
        if flags == 0
            && !is_free
            && !source.is_closed()
            && let Some(content) = tree.names.replacement(&source.at.path(), &target.at.path())
        {
            let request = ToGuard::Replace { from: source.at, to: target.at };
            return Ruling::Replace(tree.ask(request), content);
        }
        for end in [&source, &target] {
            if end.is_closed() || end.is_view() {
                return end.closed("rename");
            }
        }
        let back = to.stat().filter(|_| flags & libc::RENAME_EXCHANGE != 0);
        let moves = [(Some(&stat), &source, &target), (back.as_ref(), &target, &source)];
        for (stat, from, to) in moves {
            if stat.is_some_and(|stat| from.brings_closed(stat, to)) {
                return to.closed("rename");
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
        Ruling::Ask(tree.ask(ToGuard::Rename { from: source.at, to: target.at, flags }))
    }

    fn rule_linking(&self, from: &Place, to: &Place) -> Ruling {
        let Some(ends) = self.ends(from, to) else { return Ruling::GoOn };
        let Ends { from: source, to: target, is_free } = ends;
        for end in [&source, &target] {
            if end.is_closed() {
                return end.closed("link");
            }
        }
        let Some(stat) = from.stat() else { return Ruling::Refuse(libc::ENOENT) };
        if source.brings_closed(&stat, &target) {
            return target.closed("link");
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
        Ruling::Ask(source.tree.ask(ToGuard::Link { from: source.at, to: target.at }))
    }

    /// A new name for what a descriptor or a link stands for: the kernel refuses it in a guarded
    /// directory and across mounts, and knows nothing of names.
    fn rule_naming(&self, to: &Place) -> Ruling {
        match self.place(to) {
            Where::Guarded(spot) | Where::Free(spot) if spot.is_closed() => spot.closed("link"),
            Where::Guarded(_) | Where::Free(_) | Where::Outside => Ruling::GoOn,
        }
    }
}

/// Makes `what` at a guarded name.
fn make(caller: Caller<'_>, place: &Place, spot: Spot<'_>, mut what: Making) -> Ruling {
    if place.stat().is_some() {
        return match what {
            Making::File { .. } => Ruling::GoOn,
            Making::Dir { .. }
            | Making::Symlink { .. }
            | Making::Node { .. }
            | Making::Socket { .. } => Ruling::Refuse(libc::EEXIST),
        };
    }
    let standing = spot.standing();
    let leads_astray = matches!(what, Making::Symlink { .. }) && standing == Standing::Leads;
    if leads_astray || standing.is_closed() {
        return spot.closed("create");
    }
    match &mut what {
        Making::File { .. } if place.ends_in_slash => return Ruling::Refuse(libc::EISDIR),
        Making::Symlink { .. } | Making::Node { .. } | Making::Socket { .. }
            if place.ends_in_slash =>
        {
            return Ruling::Refuse(libc::ENOENT);
        }
        Making::Dir { mode, standing: of_dir } => {
            *mode &= !caller.umask();
            // What was guarded once is guarded again.
            *of_dir = if spot.is_view() { Standing::Leads } else { standing };
        }
        Making::File { mode, .. } | Making::Node { mode } => *mode &= !caller.umask(),
        Making::Socket { umask } => *umask = caller.umask(),
        Making::Symlink { .. } => {}
    }
    Ruling::Ask(spot.tree.ask(ToGuard::Make { at: spot.at, what }))
}
