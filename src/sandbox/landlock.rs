//! Landlock: the second wall, behind the mounts.
//!
//! It grants again what the plan's mounts show, so that a mount that could be escaped from leads
//! nowhere. It can only allow: a deny inside an allowed tree is the masks' work. It also keeps the
//! agent from tracing or signalling what is outside its domain, pid 1 of the jail included.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::plan::{Guarded, Mount, Plan, ShownAs, Stretch};
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
    // What is shown in a guarded directory is allowed by the rule of the tree. The kernel looks for
    // rules from a file upwards at each open, and one on the way spares the rest of it.
    for dir in plan.guards.iter().flat_map(writable_directories).take(MOST_ON_THE_WAY) {
        // What the host took away meanwhile needs none.
        if let Ok(dir) = open(&dir, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | PLACE, Mode::empty()) {
            rules =
                rules.add_rule(PathBeneath::new(dir, everything())).map_err(io::Error::other)?;
        }
    }
    let status = rules.restrict_self().map_err(io::Error::other)?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(())
}

/// The kernel keeps every directory with a rule until the jail ends, deleted or not.
const MOST_ON_THE_WAY: usize = 256;

/// What a tree shows at launch as it is, by its path in the jail.
fn writable_directories(guarded: &Guarded) -> impl Iterator<Item = PathBuf> + '_ {
    let views = guarded.views.iter().filter(|view| view.stretch == Stretch::ReadWrite);
    views.flat_map(|view| {
        let shown = view.names.iter().filter(|shown| shown.shown == ShownAs::Open);
        shown.map(|shown| guarded.root.join(&view.path).join(&shown.name))
    })
}

const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

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
    let place = File::from(open(path, PLACE, Mode::empty())?);
    let access =
        if place.metadata()?.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
    rules.add_rule(PathBeneath::new(place, access)).map_err(io::Error::other)
}
