//! What a process may do by itself: nothing.

use std::io;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

/// Keeps the one capability that mounting takes: what the guard does to files, it does with the
/// agent's own rights.
pub(crate) fn keep_mounting() -> io::Result<()> {
    let mounting = CapsHashSet::from([Capability::CAP_SYS_ADMIN]);
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(io::Error::other)?;
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &mounting).map_err(io::Error::other)?;
    }
    prctl::set_no_new_privs()?;
    Ok(())
}

/// Drops every capability, for good, and every way to gain one by exec.
///
/// The bounding set goes first: shrinking it takes a capability.
pub(crate) fn drop_all() -> io::Result<()> {
    // Defence::NoCapabilities: privileges::agent_can_gain_no_capability.
    for set in [CapSet::Bounding, CapSet::Ambient] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    let nothing = CapsHashSet::new();
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &nothing).map_err(io::Error::other)?;
    }
    // Defence::NoNewPrivileges: privileges::a_set_uid_program_gives_nothing.
    prctl::set_no_new_privs()?;
    Ok(())
}
