//! Who the agent is: id maps of its namespace, and idmapped mounts for a root caller.
//!
//! A caller who is root must not give the agent the kernel's uid 0, not even without capabilities:
//! `/proc/sys/kernel/core_pattern` opens for writing and `/etc/shadow` for reading by ownership
//! alone. The agent then runs as an unprivileged kernel uid, and what it may write is an idmapped
//! mount on which that uid stands for the files' owner.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Pid, Uid, pipe2, setgroups, setresgid, setresuid};

use crate::plan::{Identity, Ids};
use crate::sys::{self, Born};

/// Writes the id maps of the namespace of process `pid`: the agent's one user and group.
///
/// An ordinary caller may map only itself and must give up setgroups(2) for it
/// (user_namespaces(7)). Root maps somebody else and keeps it, so that its groups can be dropped.
pub(crate) fn map(pid: libc::pid_t, identity: Identity) -> io::Result<()> {
    let file = |name: &str| format!("/proc/{pid}/{name}");
    if !Uid::effective().is_root() {
        fs::write(file("setgroups"), "deny")?;
    }
    // Defence::Identity: files::agent_cannot_read_what_only_root_may_read.
    let Identity { inside, kernel } = identity;
    fs::write(file("uid_map"), format!("{} {} 1", inside.uid, kernel.uid))?;
    fs::write(file("gid_map"), format!("{} {} 1", inside.gid, kernel.gid))
}

/// Becomes the agent's user inside the namespace, without any other group where that is possible.
///
/// `EPERM` from setgroups(2) is an ordinary caller's: its groups stay, as they do for every program
/// that it starts.
pub(crate) fn become_inside(identity: Identity) -> io::Result<()> {
    match setgroups(&[]) {
        Ok(()) | Err(nix::errno::Errno::EPERM) => {}
        Err(other) => return Err(other.into()),
    }
    let (uid, gid) = (Uid::from_raw(identity.inside.uid), Gid::from_raw(identity.inside.gid));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// User namespaces that map files' owners to the agent, one for each owner.
#[derive(Debug)]
pub(crate) struct OwnerMaps {
    agent: Ids,
    made: Vec<(Ids, OwnedFd)>,
}

impl OwnerMaps {
    pub(crate) fn new(agent: Ids) -> Self {
        Self { agent, made: Vec::new() }
    }

    /// The tree at `path`, with files of `owner` as the agent's.
    pub(crate) fn tree_of(&mut self, owner: Ids, path: &Path) -> io::Result<OwnedFd> {
        let tree = sys::clone_tree(path)?;
        sys::idmap(tree.as_fd(), self.namespace_for(owner)?.as_fd())?;
        Ok(tree)
    }

    /// The namespace in which files of `owner` are the agent's.
    fn namespace_for(&mut self, owner: Ids) -> io::Result<&OwnedFd> {
        if let Some(at) = self.made.iter().position(|(known, _)| *known == owner) {
            return Ok(&self.made[at].1);
        }
        let namespace = namespace_mapping(owner, self.agent)?;
        self.made.push((owner, namespace));
        self.made.last().map(|(_, namespace)| namespace).ok_or(io::ErrorKind::NotFound.into())
    }
}

/// Makes a user namespace in which `owner` is the kernel's `agent`; a child lives just long enough
/// to hold it open.
fn namespace_mapping(owner: Ids, agent: Ids) -> io::Result<OwnedFd> {
    let (hold, release) = pipe2(OFlag::O_CLOEXEC)?;
    match sys::clone_with_namespaces(libc::CLONE_NEWUSER)? {
        Born::Child => {
            drop(release);
            // Ends with the parent's end of the pipe; there is nothing to do about an error.
            drop(File::from(hold).read(&mut [0]));
            sys::exit_now(0)
        }
        Born::Parent { child } => {
            let namespace = map(child, Identity { inside: owner, kernel: agent })
                .and_then(|()| File::open(format!("/proc/{child}/ns/user")));
            drop(release);
            waitpid(Pid::from_raw(child), None)?;
            Ok(namespace?.into())
        }
    }
}
