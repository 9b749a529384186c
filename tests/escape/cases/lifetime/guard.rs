//! The life of the guard's process: no longer than its run, and no run goes on without it.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::stage::Stage;
use super::{ensure_code, send};
use crate::identity::Identity;
use crate::prisoner::READY;
use crate::run::{Running, wait_until};

/// A jail that could not go on being one.
const LOST: i32 = 121;

/// The child of the supervisor that is in no other pid namespace than it: pid 1 of the jail is.
fn guard_of(running: &Running<'_>) -> anyhow::Result<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        // Who is gone by now is nobody's child.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::split_whitespace).into_iter().flatten().collect::<Vec<_>>()
        };
        let own = line("NSpid:");
        if line("PPid:") == [running.child.id().to_string()] && own.len() == depth()? {
            found.push(own[0].parse()?);
        }
    }
    ensure!(found.len() == 1, "{found:?} could be the guard");
    Ok(Pid::from_raw(found[0]))
}

/// In how many pid namespaces this process itself is.
fn depth() -> anyhow::Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    Ok(line.context("no NSpid")?.split_whitespace().count())
}

fn is_alive(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("\nState:\tZ")
}

/// Even one that is stopped.
pub(super) fn with_its_supervisor(identity: Identity) -> anyhow::Result<()> {
    for stopped in [None, Some(Signal::SIGSTOP)] {
        let stage = Stage::set(identity)?;
        let mut running = stage.start_until_ready(&[], &["wait"], 1)?;
        let guard = guard_of(&running)?;
        kill(guard, stopped)?;
        running.child.kill()?;
        ensure!(running.child.wait()?.signal() == Some(9), "the supervisor ended by itself");
        stage.nobody_is_alive_soon()?;
        wait_until(|| Ok(!is_alive(guard))).context("the guard is alive")?;
    }
    Ok(())
}

pub(super) fn with_the_run(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let running = stage.start_until_ready(&["--grace", "200ms"], &["stubborn", "4"], 4)?;
    let guard = guard_of(&running)?;
    send(&running, Signal::SIGTERM)?;
    ensure_code(&running.end()?, 137)?;
    ensure!(!is_alive(guard), "the guard is alive");
    stage.nobody_is_alive()?;
    stage.ended_once("user")
}

/// Nobody may name anything any more, so the run is over.
pub(super) fn lost(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let before = fs::read(stage.file("closed/.env"))?;
    for life in [&["wait"][..], &["storm", "50"]] {
        let running = stage.start_until_ready(&["--grace", "200ms"], life, 1)?;
        kill(guard_of(&running)?, Signal::SIGKILL)?;
        ensure_code(&running.end()?, LOST)?;
        stage.nobody_is_alive()?;
        stage.ended_once("failure")?;
        fs::remove_file(stage.file(READY))?;
    }
    ensure!(fs::read(stage.file("closed/.env"))? == before, "the host's file has changed");
    let left: Vec<_> = fs::read_dir(stage.world.work())?.flatten().collect();
    ensure!(left.len() == 1, "something is left: {left:?}");
    Ok(())
}
