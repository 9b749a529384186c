//! Landlock: the second wall, behind the mounts.
//!
//! It grants again what the plan's mounts show, so that a mount that could be escaped from leads
//! nowhere. It can only allow: a deny inside an allowed tree is the masks' work. It also keeps the
//! agent from tracing or signalling what is outside its domain, pid 1 of the jail included.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::plan::{Mount, Plan, Stretch};
use crate::sys;

/// What level `full` insists on: truncation is judged since ABI 3 (Linux 6.2).
const NEEDED: ABI = ABI::V3;

/// The newest rights that are used where the kernel has them.
const WANTED: ABI = ABI::V10;

/// The kernel's Landlock version, 0 without Landlock.
#[must_use]
pub fn abi() -> u32 {
    sys::landlock_abi().unwrap_or(0)
}

/// Rights that kernels with version `abi` lack, by name.
#[must_use]
pub fn missing(abi: u32) -> Vec<String> {
    let since = [(5, "landlock.ioctl_dev"), (6, "landlock.scope"), (9, "landlock.resolve_unix")];
    let missing = since.into_iter().filter(|(version, _)| abi < *version);
    missing.map(|(_, name)| name.to_owned()).collect()
}

/// Restricts this process and its children to what `plan` shows.
pub(crate) fn restrict(plan: &Plan) -> io::Result<()> {
    // Defence::Landlock: files::agent_can_make_no_device.
    let mut rules = ruleset().map_err(io::Error::other)?;
    // One rule for all that is only read: a path's rules are those of its parents in the jail,
    // across mounts, and a path that leads outside of the new root has none of them.
    rules = allow(rules, Path::new("/"), AccessFs::from_read(WANTED))?;
    for mount in &plan.mounts {
        rules = match mount {
            Mount::Bind { target, stretch: Stretch::ReadWrite, .. }
            | Mount::Overlay { target, .. }
            | Mount::Tmpfs { target, .. } => allow(rules, target, everything())?,
            Mount::Devices => allow(rules, Path::new("/dev"), everything())?,
            Mount::Proc => allow(rules, Path::new("/proc"), proc())?,
            Mount::Bind { stretch: Stretch::ReadOnly, .. }
            | Mount::Directory { .. }
            | Mount::File { .. }
            | Mount::Alias { .. }
            | Mount::Symlink { .. } => rules,
        };
    }
    let status = rules.restrict_self().map_err(io::Error::other)?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(())
}

fn ruleset() -> Result<RulesetCreated, landlock::RulesetError> {
    let newer = AccessFs::from_all(WANTED) & !AccessFs::from_all(NEEDED);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(newer)?
        // Defence::LandlockScope: privileges::agent_cannot_kill_pid_1.
        .scope(Scope::from_all(WANTED))?
        .create()?;
    Ok(rules.set_compatibility(CompatLevel::BestEffort))
}

fn everything() -> BitFlags<AccessFs> {
    // Making device nodes takes a capability that nobody here has; it stays withheld all the same.
    AccessFs::from_all(WANTED) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// A process writes its own `comm`, `oom_score_adj` and the like.
fn proc() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Execute
}

/// Grants `access` at and below `path`; a file takes of it what files have.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    let place: OwnedFd = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let place = File::from(place);
    let access =
        if place.metadata()?.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
    rules.add_rule(PathBeneath::new(place, access)).map_err(io::Error::other)
}
