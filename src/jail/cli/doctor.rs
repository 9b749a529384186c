//! `kvro-jail doctor`: what this machine can enforce, by trying it, and the fix for what it cannot.

use std::io::Write;
use std::path::PathBuf;

use kvro_sandbox::{Command, Host, Identity, LaunchError, Plan, Stage};
use serde::Serialize;

use super::repair::close_dead_runs;
use crate::failure::Failure;
use crate::plan::{RootCaller, person};
use crate::start::Say;
use crate::surroundings::Surroundings;

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Close what runs that were cut off left open, and inspect their workspaces
    #[arg(long, conflicts_with = "json")]
    repair: bool,
}

/// What the machine can do.
#[derive(Debug, Serialize)]
struct Diagnosis {
    kernel: String,
    /// The level that can be had; `null` when none can.
    level: Option<&'static str>,
    checks: Vec<Check>,
}

/// One layer.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Something optional is not there.
    Limited,
    Missing,
}

/// Tries everything and tells; 0 when level `full` can be had, else 1.
pub fn run(
    args: &DoctorArgs,
    surroundings: &Surroundings,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    if args.repair {
        return repair(surroundings, out);
    }
    let diagnosis = diagnose(surroundings);
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&diagnosis)?)?;
    } else {
        print(&diagnosis, out)?;
    }
    Ok(u8::from(diagnosis.level.is_none()))
}

/// Sees to the runs that were cut off; 0 when nothing of them is left to do.
fn repair(surroundings: &Surroundings, out: &mut dyn Write) -> anyhow::Result<u8> {
    let state = kvro_ledger::StateDir::open(&surroundings.state_dir())?;
    let clock = kvro_ledger::Clock::system();
    let many =
        close_dead_runs(&state, &clock, Say::Everything, out).map_err(|failure| failure.error)?;
    if many == 0 {
        writeln!(out, "kvro-jail: no run was cut off")?;
    }
    Ok(0)
}

fn print(diagnosis: &Diagnosis, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "kernel {}", diagnosis.kernel)?;
    for check in &diagnosis.checks {
        let mark = match check.status {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        writeln!(out, "{mark:<8} {:<22} {}", check.name, check.detail)?;
        for line in check.fix.iter().flat_map(|fix| fix.lines()) {
            writeln!(out, "         fix: {line}")?;
        }
    }
    match diagnosis.level {
        Some(level) => writeln!(out, "level `{level}` can be had"),
        None => writeln!(out, "no level can be had: a run would be refused with exit code 125"),
    }
}

fn diagnose(surroundings: &Surroundings) -> Diagnosis {
    let host = Host::probe();
    let trial = trial();
    let mut checks =
        vec![jail_check(&host, surroundings, trial.as_ref().err()), landlock_check(&host)];
    checks.push(apparmor_check(&host));
    checks.push(resources_check(&host));
    checks.push(optional(
        "overlay",
        host.has_overlay,
        "caches get a writable private layer",
        "caches of toolchains are read-only",
        "modprobe overlay",
    ));
    checks.push(optional(
        "ipv6",
        host.has_ipv6,
        "the door listens on both families",
        "the door listens on IPv4 alone",
        "nothing: the jail is as tight without it",
    ));
    checks.push(state_check(surroundings));
    let is_full = checks.iter().all(|check| check.status != Status::Missing);
    Diagnosis { kernel: host.kernel, level: is_full.then_some("full"), checks }
}

/// Makes a real jail that runs nothing and is dropped.
fn trial() -> Result<(), LaunchError> {
    let identity: Identity = person(RootCaller::Substitute).identity;
    let command = Command { cwd: PathBuf::from("/"), ..Command::default() };
    let mounts = vec![kvro_sandbox::Mount::Devices, kvro_sandbox::Mount::Proc];
    let plan = Plan { command, mounts, door_ports: vec![80, 443], ..Plan::closed(identity) };
    Stage::start()?.launch(&plan, "doctor").map(drop)
}

fn jail_check(host: &Host, caller: &Surroundings, error: Option<&LaunchError>) -> Check {
    let name = "namespaces";
    let Some(error) = error else {
        let detail = "user, mount, pid, net, ipc, uts, cgroup: made and left".to_owned();
        return Check { name, status: Status::Ok, detail, fix: None };
    };
    let (detail, hint) = Failure::explain_launch(error, host, caller);
    Check { name, status: Status::Missing, detail, fix: hint }
}

fn landlock_check(host: &Host) -> Check {
    const NEEDED: u32 = 3;
    let name = "landlock";
    let missing = host.missing_rights();
    let (status, fix) = match host.landlock_abi {
        0 => (
            Status::Missing,
            Some("boot with `lsm=landlock,…` on a kernel with CONFIG_SECURITY_LANDLOCK".to_owned()),
        ),
        abi if abi < NEEDED => (Status::Missing, Some("run a kernel of 6.2 or later".to_owned())),
        _ if missing.is_empty() => (Status::Ok, None),
        _ => (Status::Limited, Some("a newer kernel has these".to_owned())),
    };
    let detail = match (host.landlock_abi, missing.is_empty()) {
        (abi, true) => format!("abi {abi}"),
        (abi, false) => format!("abi {abi}, without {}", missing.join(", ")),
    };
    Check { name, status, detail, fix }
}

fn apparmor_check(host: &Host) -> Check {
    let name = "apparmor";
    let restricts = host.apparmor_restricts_userns == Some(1);
    let detail = if restricts {
        "restricts user namespaces of programs without a profile"
    } else {
        "does not restrict user namespaces"
    };
    let fix = restricts.then(|| {
        let program = std::env::current_exe().unwrap_or_else(|_| "/usr/local/bin/kvro-jail".into());
        format!(
            "as root, write /etc/apparmor.d/kvro-jail:\n\
             abi <abi/4.0>,\n\
             include <tunables/global>\n\
             profile kvro-jail {} flags=(unconfined) {{ userns, }}\n\
             then: apparmor_parser -r /etc/apparmor.d/kvro-jail",
            program.display()
        )
    });
    let status = if restricts { Status::Limited } else { Status::Ok };
    Check { name, status, detail: detail.to_owned(), fix }
}

fn resources_check(host: &Host) -> Check {
    let name = "resources";
    let needed = ["memory", "pids", "cpu"];
    let missing: Vec<&str> = needed
        .into_iter()
        .filter(|needed| !host.cgroup_controllers.iter().any(|offered| offered == needed))
        .collect();
    if missing.is_empty() {
        let detail = "a delegated cgroup v2".to_owned();
        return Check { name, status: Status::Ok, detail, fix: None };
    }
    let detail = format!("resource limits only: no delegated cgroup v2 for {}", missing.join(", "));
    let fix = "start it in a delegated scope: systemd-run --user --scope -p Delegate=yes \
               kvro-jail …";
    Check { name, status: Status::Limited, detail, fix: Some(fix.to_owned()) }
}

fn optional(name: &'static str, has: bool, with: &str, without: &str, fix: &str) -> Check {
    if has {
        Check { name, status: Status::Ok, detail: with.to_owned(), fix: None }
    } else {
        let fix = Some(fix.to_owned());
        Check { name, status: Status::Limited, detail: without.to_owned(), fix }
    }
}

fn state_check(surroundings: &Surroundings) -> Check {
    let name = "state";
    let path = surroundings.state_dir();
    match kvro_ledger::StateDir::open(&path) {
        Ok(_) => Check { name, status: Status::Ok, detail: path.display().to_string(), fix: None },
        Err(error) => {
            let fix = Some(crate::start::STATE_HINT.to_owned());
            let detail = format!("{:#}", anyhow::Error::from(error));
            Check { name, status: Status::Missing, detail, fix }
        }
    }
}
