//! Resource limits of the agent's process, inherited by all its children.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::Pid;

use super::Resources;

/// Holds what `resources` asks for on this process; also what holds for every jail: no core dumps.
///
/// A core limit of 1 rather than 0: a piped core handler of the host is called under 0 and not
/// under 1 (core(5)), and no file that short is written.
pub(crate) fn apply(resources: &Resources) -> io::Result<()> {
    // Defence::CoreLimit: privileges::a_crash_leaves_no_core.
    setrlimit(Resource::RLIMIT_CORE, 1, 1)?;
    // Defence::Ceilings: privileges::a_flood_of_processes_meets_a_ceiling.
    if let Some(bytes) = resources.memory {
        // Private memory that can be written (Linux 4.7). Not the address space: Node, Bun and Go
        // reserve far more of that than they ever use.
        setrlimit(Resource::RLIMIT_DATA, bytes, bytes)?;
    }
    if let Some(pids) = resources.pids {
        // Counted in the jail's own user namespace, pid 1 among them.
        setrlimit(Resource::RLIMIT_NPROC, pids + 1, pids + 1)?;
    }
    if let Some(millicpus) = resources.millicpus {
        pin(usize::try_from(millicpus.div_ceil(1000)).unwrap_or(usize::MAX))?;
    }
    Ok(())
}

/// Leaves this process the first `count` of its processors.
fn pin(count: usize) -> io::Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let mut kept = CpuSet::new();
    let mut left = count.max(1);
    for cpu in 0..CpuSet::count() {
        if left > 0 && allowed.is_set(cpu)? {
            kept.set(cpu)?;
            left -= 1;
        }
    }
    sched_setaffinity(this, &kept)?;
    Ok(())
}
