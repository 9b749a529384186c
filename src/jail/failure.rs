//! How the program fails: exit codes, and the words with a hint that go with them.
//!
//! Exit codes are public. This is the one place that maps to them.

use std::fmt;
use std::io;

use kvro_sandbox::{Host, LaunchError, Step};

use crate::surroundings::Surroundings;

/// The supervisor had to end the run: door, guard or ledger failed.
pub const FAILED: u8 = 121;
/// A ceiling was reached.
pub const LIMIT: u8 = 122;
/// The policy ended the run.
pub const POLICY: u8 = 123;
/// Wall time.
pub const WALL: u8 = 124;
/// Usage, policy, or a jail that could not be set up as asked. Nothing was run.
pub const SETUP: u8 = 125;
/// The command cannot be run.
pub const CANNOT_RUN: u8 = 126;
/// The command cannot be found.
pub const NOT_FOUND: u8 = 127;

/// The public table, as `--help` prints it.
pub const EXIT_CODES: &str = "\
Exit codes of a run:
  N      the command's own
  128+N  signal N ended the command
  121    the supervisor had to end it (door, guard or ledger failed)
  122    a ceiling was reached
  123    the policy ended it
  124    wall time
  125    usage error, invalid policy, or the jail could not be set up as asked
  126    the command cannot be run
  127    the command cannot be found
A command may return these numbers too: --report FILE says which it was.
Other subcommands: 0, 1, and 2 for usage; `ledger verify`: 0 intact, 1 broken, 2 unreadable.";

/// An error on its way to the caller.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub error: anyhow::Error,
    pub hint: Option<String>,
}

impl Failure {
    /// Nothing was run.
    pub fn setup(error: impl Into<anyhow::Error>) -> Self {
        Self { code: SETUP, error: error.into(), hint: None }
    }

    /// The run could not go on.
    pub fn during_run(error: impl Into<anyhow::Error>) -> Self {
        Self { code: FAILED, error: error.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A jail that could not be made, with what to do about it on this machine.
    #[must_use]
    pub fn launch(error: LaunchError, host: &Host, caller: &Surroundings) -> Self {
        let hint = launch_hint(&error, host, caller);
        Self { hint, ..Self::setup(error) }
    }

    /// The words for a jail that could not be made: what failed, and the fix.
    #[must_use]
    pub fn explain_launch(
        error: &LaunchError,
        host: &Host,
        caller: &Surroundings,
    ) -> (String, Option<String>) {
        let cause = std::error::Error::source(error);
        let what = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
        (what, launch_hint(error, host, caller))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

fn launch_hint(error: &LaunchError, host: &Host, caller: &Surroundings) -> Option<String> {
    // Whatever step it was that failed: no setting of the machine would help.
    if caller.is_in_a_jail() {
        return Some("this is a jail already, and it makes no other inside".to_owned());
    }
    let LaunchError::Step { step, cause } = error else { return None };
    let layer = step.layer();
    let refused = matches!(cause.kind(), io::ErrorKind::PermissionDenied);
    let full = cause.raw_os_error() == Some(28);
    if *step == Step::Seccomp && cause.kind() == io::ErrorKind::ResourceBusy {
        return Some(
            "another sandbox around this one judges its system calls already, and the kernel lets \
             one do so: start kvro-jail outside of it"
                .to_owned(),
        );
    }
    if layer == "landlock" || (layer == "seccomp" && !refused) {
        return Some(format!(
            "the layer `{layer}` needs a newer kernel or a boot option; `kvro-jail doctor` tells"
        ));
    }
    if refused && host.apparmor_restricts_userns == Some(1) {
        return Some(
            "AppArmor restricts user namespaces here: `kvro-jail doctor` prints a profile for this \
             program to install as root"
                .to_owned(),
        );
    }
    if full && host.max_user_namespaces == Some(0) {
        return Some(
            "user namespaces are switched off: as root, `sysctl user.max_user_namespaces=15000`"
                .to_owned(),
        );
    }
    if refused && host.userns_clone == Some(0) {
        return Some(
            "unprivileged user namespaces are switched off: as root, \
             `sysctl kernel.unprivileged_userns_clone=1`"
                .to_owned(),
        );
    }
    if refused && host.in_container {
        return Some(
            "this looks like a container whose own filter forbids namespaces: start it with \
             `--security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined`, or run kvro-jail on the host"
                .to_owned(),
        );
    }
    if let Step::OpenTree(path) | Step::MapOwners(path) = step {
        return Some(format!("can you read {} yourself?", path.display()));
    }
    Some(format!("the layer `{layer}` cannot be had here; `kvro-jail doctor` tells more"))
}

/// What a failed exec means for the exit code (as shells have it).
#[must_use]
pub fn exec_code(cause: &io::Error) -> u8 {
    if cause.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jail_in_a_jail_is_told_no_setting_of_the_machine() {
        let refused = || LaunchError::Step {
            step: Step::EnterNamespaces,
            cause: io::ErrorKind::PermissionDenied.into(),
        };
        let host =
            Host { apparmor_restricts_userns: Some(0), userns_clone: Some(0), ..Host::probe() };
        let mut caller = Surroundings::of_this_process().unwrap();
        caller.env.clear();
        let outside = Failure::launch(refused(), &host, &caller).hint;
        caller.env.insert("KVRO_JAIL".into(), "1".into());
        let inside = Failure::launch(refused(), &host, &caller).hint;
        assert_eq!(
            [outside.as_deref(), inside.as_deref()],
            [
                Some(
                    "unprivileged user namespaces are switched off: as root, \
                     `sysctl kernel.unprivileged_userns_clone=1`"
                ),
                Some("this is a jail already, and it makes no other inside"),
            ]
        );
    }
}
