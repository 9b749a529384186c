//! Who the agent is, inside and to the kernel.

use std::path::Path;

use kvro_sandbox::{Identity, Ids, Owner};
use nix::unistd::{Uid, User, getegid, geteuid};

/// The agent's user as programs see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub name: String,
    pub identity: Identity,
    /// Whether the caller is root, whose files the agent gets by mapping them to itself.
    pub maps_owners: bool,
}

/// How a root caller's agent is kept from being the kernel's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootCaller {
    /// The agent is an unprivileged kernel uid, and its files are idmapped.
    Substitute,
    /// Where the filesystem cannot be idmapped: uid 0 under an ordinary uid's name. The kernel
    /// still takes it for the owner of root's files; the mounts hold alone.
    Renamed,
}

/// An id that no range of users, containers or services is given (systemd's uid table ends at
/// 0x6fff_ffff).
const SUBSTITUTE: u32 = 0x7000_0000;

/// The first ordinary user of most systems.
const ORDINARY: u32 = 1000;

/// The agent's user for whoever calls this program.
#[must_use]
pub fn person(root: RootCaller) -> Person {
    let (uid, gid) = (geteuid(), getegid());
    if !uid.is_root() {
        let own = Ids { uid: uid.as_raw(), gid: gid.as_raw() };
        let identity = Identity { inside: own, kernel: own };
        return Person { name: user_name(uid), identity, maps_owners: false };
    }
    let inside = Ids { uid: ORDINARY, gid: ORDINARY };
    let (kernel, maps_owners) = match root {
        RootCaller::Substitute => (Ids { uid: SUBSTITUTE, gid: SUBSTITUTE }, true),
        RootCaller::Renamed => (Ids { uid: 0, gid: 0 }, false),
    };
    Person { name: "agent".to_owned(), identity: Identity { inside, kernel }, maps_owners }
}

fn user_name(uid: Uid) -> String {
    let user = User::from_uid(uid).ok().flatten();
    user.map_or_else(|| "agent".to_owned(), |user| user.name)
}

impl Person {
    /// Whom the files at `path` shall seem to belong to, so that the agent can write them.
    #[must_use]
    pub fn owner_of(&self, path: &Path) -> Owner {
        use std::os::unix::fs::MetadataExt;
        if !self.maps_owners {
            return Owner::AsIs;
        }
        // What is gone by now fails at its mount, with its name.
        let metadata = std::fs::metadata(path).ok();
        let ids = metadata.map_or(Ids { uid: 0, gid: 0 }, |m| Ids { uid: m.uid(), gid: m.gid() });
        Owner::Mapped(ids)
    }
}
