//! Lifetimes: nothing of a jail outlives its command, its supervisor or the wish that it end.
//!
//! Who is alive is counted outside, by a mark in the environment, and each count has a control: it
//! was above zero while the jail lived.

mod guard;
mod stage;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use self::stage::Stage;
use super::Case;
use crate::census;
use crate::identity::Identity;
use crate::prisoner::{GO, READY};
use crate::record;
use crate::row::Defence;
use crate::run::{Ran, Running, start, wait_until};

pub(super) const CASES: &[Case] = &[
    case("orphans_end_with_the_command", Defence::PidNamespace, orphans),
    case("a_child_that_holds_the_streams_holds_nobody_up", Defence::PidNamespace, held_streams),
    case("who_ignores_signals_ends_after_the_grace", Defence::KillSwitch, stubborn),
    case("kill_ends_a_run", Defence::KillSwitch, killed),
    case("sigterm_ends_the_command", Defence::KillSwitch, terminated),
    case("many_wishes_make_one_end", Defence::KillSwitch, many_wishes),
    case("sigterm_during_a_launch_is_not_lost", Defence::KillSwitch, terminated_early),
    case("a_storm_of_forks_ends_with_its_supervisor", Defence::Lifeline, storm),
    case("the_guard_ends_with_its_supervisor", Defence::Guard, guard::with_its_supervisor),
    case("the_guard_ends_with_the_run", Defence::Guard, guard::with_the_run),
    case("a_run_ends_with_its_guard", Defence::Guard, guard::lost),
    case("a_launch_killed_before_its_record_is_no_run", Defence::Lifeline, unborn),
    case("a_launch_ends_with_its_supervisor_at_every_point", Defence::Lifeline, launches),
];

const fn case(
    name: &'static str,
    defence: Defence,
    run: fn(Identity) -> anyhow::Result<()>,
) -> Case {
    Case { name, defence, needs: &[], run }
}

fn send(running: &Running<'_>, signal: Signal) -> anyhow::Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(running.child.id())?), signal)?)
}

fn ensure_code(ran: &Ran, code: i32) -> anyhow::Result<()> {
    ensure!(ran.code == Some(code), "not {code}: {ran}");
    Ok(())
}

fn orphans(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let running = stage.start_until_ready(&[], &["leave-orphans", "20"], 20)?;
    fs::write(stage.file(GO), "")?;
    ensure_code(&running.end()?, 0)?;
    stage.nobody_is_alive()?;
    stage.ended_once("exit")
}

fn held_streams(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let code = read_to_the_end(stage.command(&[], &["hold-streams"])?, || ())?;
    ensure!(code == Some(3), "exit {code:?}");
    stage.nobody_is_alive()?;
    stage.ended_once("exit")?;

    // The control: outside, the pipe stays open until somebody ends the child.
    let mut outside = stage.world.outside(identity, &["hold-streams"])?;
    outside.env("KVRO_ESCAPE_MARK", &stage.mark);
    let mut held = 0;
    read_to_the_end(outside, || {
        for pid in census::marked(&stage.mark) {
            held += 1;
            if let Ok(pid) = i32::try_from(pid) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
            }
        }
    })?;
    ensure!(held > 0, "the control: nobody held the streams outside");
    Ok(())
}

/// Reads the standard output of `command` to its end as callers do; `after` is called when the
/// command itself is over.
fn read_to_the_end(mut command: Command, after: impl FnOnce()) -> anyhow::Result<Option<i32>> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdout = child.stdout.take().context("no pipe")?;
    let reader = thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let mut status = None;
    wait_until(|| {
        status = child.try_wait()?;
        Ok(status.is_some())
    })?;
    after();
    wait_until(|| Ok(reader.is_finished())).context("the pipe stays open")?;
    Ok(status.and_then(|status| status.code()))
}

fn stubborn(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let options = ["--max-wall", "1s", "--grace", "200ms"];
    let mut command = stage.command(&options, &["stubborn", "50"])?;
    let running = start(&mut command, stage.world.root())?;
    let mut most = 0;
    wait_until(|| {
        most = most.max(census::marked(&stage.mark).len());
        Ok(most >= 50)
    })
    .context("the stubborn were never counted")?;
    ensure_code(&running.end()?, 124)?;
    stage.nobody_is_alive()?;
    let entries = stage.entries()?;
    let completed = record::data_of(&entries, "kill.completed");
    ensure!(completed.len() == 1 && completed[0]["signal"] == "SIGKILL", "{completed:?}");
    stage.ended_once("wall")
}

fn killed(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    for (life, grace, code) in [(&["wait"][..], "30s", 143), (&["stubborn", "8"][..], "200ms", 137)]
    {
        let running = stage.start_until_ready(&["--grace", grace], life, 1)?;
        ensure!(stage.kill_command()?.status()?.success(), "kill failed");
        ensure_code(&running.end()?, code)?;
        stage.nobody_is_alive()?;
        stage.ended_once("user")?;
        fs::remove_file(stage.file(READY))?;
    }
    // A run that is gone cannot be ended, and its record stays as it is.
    let before = stage.entries()?;
    ensure!(!stage.kill_command()?.status()?.success(), "a run was killed that is gone");
    ensure!(stage.entries()? == before, "the record has changed");
    Ok(())
}

fn terminated(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let running = stage.start_until_ready(&[], &["wait"], 1)?;
    send(&running, Signal::SIGTERM)?;
    ensure_code(&running.end()?, 143)?;
    stage.nobody_is_alive()?;
    stage.ended_once("user")
}

/// Whenever in a launch the signal comes, the run ends, and nothing is left open.
fn terminated_early(identity: Identity) -> anyhow::Result<()> {
    const POINTS: u32 = 10;
    let stage = Stage::set(identity)?;
    let began = Instant::now();
    let running = stage.start_until_ready(&[], &["wait"], 1)?;
    let whole = began.elapsed();
    send(&running, Signal::SIGTERM)?;
    running.end()?;
    for point in 0..POINTS {
        let running = start(&mut stage.command(&[], &["wait"])?, stage.world.root())?;
        // Not to wait for anything: this is the point of the launch.
        thread::sleep(whole * point / POINTS);
        send(&running, Signal::SIGTERM)?;
        let ran = running.end().with_context(|| format!("terminated at point {point}"))?;
        ensure!(ran.code.is_none_or(|code| code == 143), "at point {point}: {ran}");
        stage.nobody_is_alive_soon().with_context(|| format!("terminated at point {point}"))?;
    }
    let ran = start(&mut stage.command(&[], &["thread"])?, stage.world.root())?.end()?;
    ensure_code(&ran, 0)?;
    record::verify(stage.world.identity, &stage.world.state())
}

fn many_wishes(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let running = stage.start_until_ready(&["--grace", "200ms"], &["stubborn", "8"], 8)?;
    for _ in 0..20 {
        send(&running, Signal::SIGINT)?;
    }
    let mut kills = [stage.kill_command()?.spawn()?, stage.kill_command()?.spawn()?];
    for _ in 0..4 {
        send(&running, Signal::SIGTERM)?;
        send(&running, Signal::SIGHUP)?;
    }
    ensure_code(&running.end()?, 137)?;
    for kill in &mut kills {
        // The second may come when the run is gone.
        kill.wait()?;
    }
    stage.nobody_is_alive()?;
    let requested = record::data_of(&stage.entries()?, "kill.requested").len();
    ensure!(requested == 1, "{requested} ends were begun");
    stage.ended_once("user")
}

fn storm(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let before = crate::play::look(&stage.world.work())?;
    let mut running = stage.start_until_ready(&[], &["storm", "200"], 100)?;
    running.child.kill()?;
    let status = running.child.wait()?;
    ensure!(status.signal() == Some(9), "the supervisor ended by itself: {status:?}");
    stage.nobody_is_alive_soon()?;
    fs::remove_file(stage.file(READY))?;
    ensure!(crate::play::look(&stage.world.work())? == before, "something is left");
    recovered(&stage, 1)
}

/// The next run closes the ledgers of `killed` runs, and everything on record is sound.
fn recovered(stage: &Stage, killed: usize) -> anyhow::Result<()> {
    let ran = start(&mut stage.command(&[], &["thread"])?, stage.world.root())?.end()?;
    ensure!(ran.code == Some(0) && ran.stdout == "ok\n", "the next run: {ran}");
    let mut recovered = 0;
    for run in record::runs(&stage.world.state())? {
        // A recovery may itself have been killed and done again.
        let entries = record::entries(&run)?;
        recovered += usize::from(!record::data_of(&entries, "ledger.recovered").is_empty());
    }
    ensure!(recovered == killed, "{recovered} of {killed} killed runs were recovered");
    record::verify(stage.world.identity, &stage.world.state())
}

/// What a kill in the first moment of a launch leaves: a directory without a ledger, of a run that
/// never began. It spoils nothing.
fn unborn(identity: Identity) -> anyhow::Result<()> {
    let stage = Stage::set(identity)?;
    let run = || start(&mut stage.command(&[], &["thread"])?, stage.world.root())?.end();
    ensure_code(&run()?, 0)?;
    let runs = record::runs(&stage.world.state())?;
    let name = runs.last().and_then(|run| run.to_str()).context("no run is on record")?;
    // The name of another run: only its last digit differs.
    let (rest, last) = name.split_at(name.len() - 1);
    let unborn = format!("{rest}{}", if last == "0" { "1" } else { "0" });
    fs::create_dir(&unborn)?;
    fs::set_permissions(&unborn, fs::Permissions::from_mode(0o700))?;
    identity.give(unborn.as_ref())?;
    ensure_code(&run()?, 0)?;
    record::verify(identity, &stage.world.state())
}

fn launches(identity: Identity) -> anyhow::Result<()> {
    const POINTS: u32 = 20;
    let stage = Stage::set(identity)?;
    let mut killed = 0;
    let mut whole = Duration::ZERO;
    // The first launch is seen to its end, which measures it; it is killed too.
    for point in 0..=POINTS {
        let began = Instant::now();
        let life = ["wait"];
        let mut running = if point == 0 {
            let running = stage.start_until_ready(&[], &life, 1)?;
            whole = began.elapsed();
            ensure!(stage.world.alive(&stage.mark)?.len() >= 2, "the supervisor is not counted");
            running
        } else {
            let running = start(&mut stage.command(&[], &life)?, stage.world.root())?;
            // Not to wait for anything: this is the point of the launch.
            thread::sleep(whole * (point - 1) / (POINTS - 1));
            running
        };
        running.child.kill()?;
        running.child.wait()?;
        stage.nobody_is_alive_soon().with_context(|| format!("killed at point {point}"))?;
        let is_ready = fs::remove_file(stage.file(READY)).is_ok();
        let runs = record::runs(&stage.world.state())?;
        killed = runs.len();
        ensure!(!is_ready || ran_sealed(&runs)?, "it ran before its isolation was on record");
    }
    ensure!(killed > 0, "no launch got as far as the record");
    recovered(&stage, killed)
}

/// Whether the last of `runs` had its isolation on record.
fn ran_sealed(runs: &[PathBuf]) -> anyhow::Result<bool> {
    let entries = record::entries(runs.last().context("it ran without a record")?)?;
    Ok(entries.get(1).is_some_and(|entry| entry["event"] == json!("isolation.applied")))
}
