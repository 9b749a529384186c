//! What the agent is and holds: no capability, no way to one, nothing of its caller's.

use crate::area::{Area, Fact};
use crate::needs::Need;
use crate::play::Played;
use crate::row::{Control, Defence, Expect, Probe, Row};

const NO_CAPABILITY: Expect = Expect::Is("0000000000000000");
const A_CAPABILITY: Expect = Expect::IsNot("0000000000000000");

pub(super) fn area() -> Area {
    Area {
        name: "privileges",
        options: &["--pids", "64"],
        env: &[],
        files: &[],
        rows: rows(),
        facts: FACTS,
    }
}

fn row(
    name: &'static str,
    defence: Defence,
    words: &'static [&'static str],
    inside: Expect,
    control: Control,
) -> Row {
    Row { name, defence, needs: &[], probe: Probe::Words(words), inside, control }
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    use Control::{Outside, OutsideAsRoot, Twin};
    use Expect::{Is, IsNot};
    let mut rows: Vec<Row> = [
        ("agent_has_no_effective_capability", &["status", "CapEff"]),
        ("agent_has_no_permitted_capability", &["status", "CapPrm"]),
        ("agent_can_gain_no_capability", &["status", "CapBnd"]),
    ].into_iter().map(|(name, words)| {
        row(name, Defence::NoCapabilities, words, NO_CAPABILITY, OutsideAsRoot(A_CAPABILITY))
    }).collect();
    rows.extend([
        row("agent_has_no_inheritable_capability", Defence::NoCapabilities, &["status", "CapInh"],
            NO_CAPABILITY, Twin(&["status", "NoNewPrivs"], Is("1"))),
        row("agent_has_no_ambient_capability", Defence::NoCapabilities, &["status", "CapAmb"],
            NO_CAPABILITY, Twin(&["status", "NoNewPrivs"], Is("1"))),
        row("no_exec_gives_the_agent_privileges", Defence::NoNewPrivileges, &["status", "NoNewPrivs"],
            Is("1"), Outside(Is("0"))),
        row("a_filter_is_in_force", Defence::SeccompTable, &["status", "Seccomp"],
            Is("2"), Outside(Is("0"))),
        row("the_callers_descriptors_stay_outside", Defence::ClosedDescriptors, &["descriptors"],
            Is("none"), Outside(IsNot("none"))),
        row("a_crash_leaves_no_core", Defence::CoreLimit, &["core-limit"],
            Is("1 1"), Outside(IsNot("1 1"))),
        row("agent_cannot_raise_the_core_limit", Defence::CoreLimit, &["raise-core-limit"],
            Is("EPERM"), OutsideAsRoot(Is("ok"))),
        row("agent_cannot_kill_pid_1", Defence::LandlockScope, &["signal", "1"],
            Is("EPERM"), Twin(&["signal-own"], Is("ok"))),
        row("agent_cannot_trace_pid_1", Defence::LandlockScope, &["trace", "1"],
            Is("EPERM"), Twin(&["trace-own"], Is("ok"))),
        row("agent_cannot_read_the_memory_of_pid_1", Defence::HiddenPid1, &["read", "/proc/1/mem"],
            Is("EACCES"), Twin(&["open-to-write", "/proc/self/mem"], Is("ok"))),
        row("agent_cannot_read_the_environment_of_pid_1", Defence::HiddenPid1, &["read", "/proc/1/environ"],
            Is("EACCES"), Twin(&["read", "/proc/self/environ"], Is("other"))),
        row("agent_cannot_enter_the_root_of_pid_1", Defence::HiddenPid1, &["list", "/proc/1/root"],
            Is("EACCES"), Twin(&["read", "/proc/self/root/proc/self/stat"], Is("other"))),
        row("agent_cannot_take_descriptors_of_pid_1", Defence::HiddenPid1, &["list", "/proc/1/fd"],
            Is("EACCES"), Twin(&["list", "/proc/self/fd"], IsNot(""))),
        row("pid_1_is_nobody_of_the_hosts", Defence::PidNamespace, &["read", "/proc/1/comm"],
            Is("other"), Twin(&["read", "/proc/2000000/comm"], Is("ENOENT"))),
        row("a_flood_of_processes_meets_a_ceiling", Defence::Ceilings, &["flood", "200"],
            Is("EAGAIN"), Outside(Is("no end"))),
    ]);
    let root = |row: Row| Row { needs: &[Need::RootCaller], ..row };
    let key = |row: Row| Row { needs: &[Need::Keyrings], ..row };
    rows.extend([
        root(row("a_set_uid_program_gives_nothing", Defence::NoNewPrivileges, &["run", "{set-uid}", "root-by-file"],
            Is("nobody special"), Outside(Is("root")))),
        key(row("agent_does_not_find_the_callers_keys", Defence::Keyring, &["key", "kvro-canary"],
            Is("ENOSYS"), Outside(Is("ok")))),
        key(row("agent_does_not_see_the_callers_keys", Defence::Keyring, &["read", "/proc/keys"],
            Is("empty"), Outside(Is("other")))),
        row("agent_does_not_reach_the_hosts_shared_memory", Defence::IpcNamespace, &["shared-memory", "{shared-memory}"],
            Is("ENOENT"), Outside(Is("ok"))),
        row("an_aborting_agent_dies_by_its_signal", Defence::None, &["abort"],
            Is("signal 6"), Outside(Is("signal 6"))),
    ]);
    rows
}

const FACTS: &[Fact] = &[Fact {
    name: "no_core_lies_in_the_workspace",
    defence: Defence::CoreLimit,
    needs: &[],
    check: no_core,
}];

fn no_core(played: &Played) -> anyhow::Result<()> {
    let is_core = |name: &str| name.starts_with("core");
    let cores: Vec<_> =
        played.after.keys().filter(|path| path.to_str().is_some_and(is_core)).collect();
    anyhow::ensure!(cores.is_empty(), "{cores:?}");
    Ok(())
}
