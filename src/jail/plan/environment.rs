//! The agent's environment, by list.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use kvro_ledger::RunId;

use super::certificates::Bundle;
use super::identity::Person;
use crate::policy::Policy;
use crate::surroundings::{JAIL_VARIABLE, Surroundings};
use crate::workspace::{HomeView, SYSTEM_TREES, real_path};

const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What the agent gets of the caller's environment, and what is set for it.
///
/// Later lines win: what the policy sets outranks what is ours, except what says that this is a
/// jail.
pub(super) fn environment(
    surroundings: &Surroundings,
    policy: &Policy,
    view: &HomeView,
    person: &Person,
    workspace: &Path,
    run: &RunId,
) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    // Defence::EnvironmentList: environment::GITHUB_TOKEN_stays_outside.
    let passed = surroundings.env.iter().filter(|(name, _)| policy.env.lets_in(name));
    env.extend(passed.map(|(name, value)| (name.clone(), value.clone())));
    let mut set = |name: &str, value: OsString| drop(env.insert(name.into(), value));
    set("HOME", home(surroundings, view).into());
    set("USER", person.name.clone().into());
    set("LOGNAME", person.name.clone().into());
    set("TMPDIR", "/tmp".into());
    set("PATH", search_path(view));
    set("PWD", logical_directory(surroundings, workspace).unwrap_or(workspace).into());
    // The guarded workspace is a filesystem of its own, with the real directories mounted in it.
    set("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1".into());
    for (name, value) in Bundle::variables() {
        set(name, value.into());
    }
    for entry in &policy.env.set {
        set(&entry.value.name, entry.value.value.clone().into());
    }
    set(JAIL_VARIABLE, "1".into());
    set("KVRO_JAIL_RUN", run.to_string().into());
    env.into_iter().collect()
}

/// The home as the caller calls it.
pub(super) fn home(surroundings: &Surroundings, view: &HomeView) -> std::path::PathBuf {
    if view.home.as_os_str().is_empty() { surroundings.home.clone() } else { view.home.clone() }
}

fn search_path(view: &HomeView) -> OsString {
    std::env::join_paths(&view.path)
        .ok()
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| USUAL_PATH.into())
}

/// The caller's own name for `start`, when it is another one that the jail can show.
pub(super) fn logical_directory<'s>(
    surroundings: &'s Surroundings,
    start: &Path,
) -> Option<&'s Path> {
    let logical = surroundings.path_variable("PWD").filter(|logical| *logical != start)?;
    let is_free = !SYSTEM_TREES.iter().any(|tree| logical.starts_with(tree))
        && !logical.starts_with(start)
        && !start.starts_with(logical);
    (is_free && real_path(logical).is_ok_and(|real| real == start)).then_some(logical)
}
