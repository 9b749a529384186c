//! Pid 1 of the jail: builds it, starts the agent, reaps and forwards signals.
//!
//! It is the one process whose death the kernel turns into everybody's. It dies with the
//! supervisor: by the parent-death signal, and by the end of the supervisor's socket should that
//! signal be lost. The agent cannot trace it (it is not dumpable and outside the agent's Landlock
//! domain), and the kernel ignores signals to it from inside.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::ptrace;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{
    Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, getpid, setpgid, setsid, tcsetpgrp,
};

use crate::creds;
use crate::exec;
use crate::guard::Tree;
use crate::identity;
use crate::landlock;
use crate::limits;
use crate::mounts;
use crate::net::{self, Network};
use crate::plan::{Plan, Stream};
use crate::pty::Terminal;
use crate::seccomp;
use crate::stage::{die_with_supervisor, read_plan, single};
use crate::step::{During, Step, StepFailed};
use crate::sys::{self, Born};
use crate::wire::{Channel, FromAgent, FromJail, FromPid1, ToAgent, ToJail, ToPid1};

/// Runs pid 1 to its end and returns its exit code.
pub(crate) fn run(channel: &Channel, from_stage: Channel) -> u8 {
    match live(channel, from_stage) {
        Ok(code) => code,
        Err(failed) => {
            // A supervisor that is gone needs no report.
            drop(channel.send(&FromJail::Failed(failed), &[]));
            NOT_MADE
        }
    }
}

/// The exit code of a pid 1 that never ran its command; the supervisor knows why.
const NOT_MADE: u8 = 125;

fn live(channel: &Channel, from_stage: Channel) -> Result<u8, StepFailed> {
    die_with_supervisor(channel).during(|| Step::EnterNamespaces)?;
    // Defence::Keyring: privileges::agent_does_not_find_the_callers_keys.
    sys::join_new_session_keyring().during(|| Step::LeaveKeyring)?;
    mounts::detach_from_host().during(|| Step::NewRoot)?;
    let network = Network::raise()?;
    let Some((ToPid1::Plan, fds)) = from_stage.receive().during(|| Step::ReadPlan)? else {
        // The stage failed and has said why, or nobody wants this jail any more.
        return Ok(NOT_MADE);
    };
    let plan = single(fds).and_then(|memory| read_plan(&memory)).during(|| Step::ReadPlan)?;
    let (terminal, decoys, sockets) = build(&plan, &network, channel, from_stage)?;
    creds::drop_all().during(|| Step::DropPrivileges)?;
    let signals = block_signals().during(|| Step::Fork)?;
    lead_session(terminal.as_ref()).during(|| Step::NewSession)?;
    let (gate, agent_side) = Channel::pair().during(|| Step::Fork)?;
    match sys::fork().during(|| Step::Fork)? {
        Born::Child => {
            drop((gate, decoys, sockets));
            let Err(failed) = become_agent(&plan, channel, &agent_side, terminal);
            let code = if failed.errno == libc::ENOENT { 127 } else { 126 };
            drop(channel.send(&FromJail::Failed(failed), &[]));
            sys::exit_now(code)
        }
        Born::Parent { child } => {
            drop(agent_side);
            // Defence::HiddenPid1: privileges::agent_cannot_read_the_environment_of_pid_1.
            prctl::set_dumpable(false).during(|| Step::DropPrivileges)?;
            let Some((FromAgent::Armed, _)) = gate.receive().during(|| Step::Report)? else {
                // It failed and has said why.
                return Ok(NOT_MADE);
            };
            report_ready(channel, &sockets, decoys.as_ref(), terminal.as_ref())?;
            drop((decoys, sockets, terminal));
            match channel.receive::<ToJail>().during(|| Step::Report)? {
                // One that has died meanwhile is collected like one that dies later.
                Some((ToJail::Go, _)) => drop(gate.send(&ToAgent::Go, &[])),
                _ => return Ok(NOT_MADE),
            }
            drop(gate);
            serve(Pid::from_raw(child), channel, &signals).during(|| Step::Report)
        }
    }
}

/// Everything that takes capabilities, in the one order that works.
fn build(
    plan: &Plan,
    network: &Network,
    channel: &Channel,
    from_stage: Channel,
) -> Result<(Option<Terminal>, Option<OwnedFd>, net::Sockets), StepFailed> {
    // Sources are opened as the caller, who may own directories that nobody else can enter.
    let sources = mounts::sources(plan, &from_stage)?;
    let sockets = network.open(&plan.door_ports)?;
    identity::become_inside(plan.identity).during(|| Step::BecomeAgentUser)?;
    // Both were cleared by the change of user.
    prctl::set_dumpable(true).during(|| Step::BecomeAgentUser)?;
    die_with_supervisor(channel).during(|| Step::BecomeAgentUser)?;
    let built = mounts::build(plan, sources)?;
    if !built.trees.is_empty() {
        let_the_guard_in(&built.trees, &from_stage).during(|| Step::EnterGuard)?;
    }
    drop(from_stage);
    let terminal = if plan.needs_terminal() {
        Some(Terminal::open(plan.terminal).during(|| Step::OpenTerminal)?)
    } else {
        None
    };
    Ok((terminal, built.decoys, sockets))
}

/// Hands the guarded trees to the stage and waits until it is in: it cannot join a process that is
/// no longer dumpable.
fn let_the_guard_in(trees: &[Tree], stage: &Channel) -> io::Result<()> {
    let descriptors: Vec<_> = trees.iter().flat_map(Tree::descriptors).map(AsFd::as_fd).collect();
    stage.send(&FromPid1::Laid, &descriptors)?;
    match stage.receive()? {
        Some((ToPid1::Guarded, _)) => Ok(()),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn report_ready(
    channel: &Channel,
    sockets: &net::Sockets,
    decoys: Option<&OwnedFd>,
    terminal: Option<&Terminal>,
) -> Result<(), StepFailed> {
    let count = |fds: &[OwnedFd]| u8::try_from(fds.len()).unwrap_or(u8::MAX);
    let ready = FromJail::Ready {
        dns_udp: count(&sockets.dns_udp),
        dns_tcp: count(&sockets.dns_tcp),
        tap: true,
        decoys: decoys.is_some(),
        terminal: terminal.is_some(),
    };
    let listeners = sockets.tcp.iter().chain(&sockets.dns_udp).chain(&sockets.dns_tcp);
    let mut fds: Vec<BorrowedFd<'_>> = listeners.map(AsFd::as_fd).collect();
    fds.push(sockets.tap.as_fd());
    fds.extend(decoys.map(AsFd::as_fd));
    fds.extend(terminal.map(|terminal| terminal.master.as_fd()));
    channel.send(&ready, &fds).during(|| Step::Report)
}

/// Turns this process into the agent: puts every layer in force, waits at the gate, runs the
/// command. Every step is one-way; an error leaves only exit.
fn become_agent(
    plan: &Plan,
    channel: &Channel,
    gate: &Channel,
    terminal: Option<Terminal>,
) -> Result<Infallible, StepFailed> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).during(|| Step::NewSession)?;
    if let Some(terminal) = terminal {
        take_terminal(plan, &terminal.program).during(|| Step::NewSession)?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .during(|| Step::NewSession)?;
    sys::end_at_closed_pipe().during(|| Step::NewSession)?;
    // When memory runs out, the kernel shall take from the jail first.
    drop(fs::write("/proc/self/oom_score_adj", "500"));
    limits::apply(&plan.resources).during(|| Step::SetLimits)?;
    let cwd = &plan.command.cwd;
    chdir(cwd).during(|| Step::EnterDirectory(cwd.clone()))?;
    landlock::restrict(plan).during(|| Step::Landlock)?;
    let has_guard = !plan.guards.is_empty();
    let names = if has_guard { seccomp::Names::Guarded } else { seccomp::Names::Free };
    // Last: the filter forbids most of the lines above.
    let listener = seccomp::install(names).during(|| Step::Seccomp)?;
    channel.send(&FromJail::Listener, &[listener.as_fd()]).during(|| Step::Report)?;
    drop(listener);
    gate.send(&FromAgent::Armed, &[]).during(|| Step::Report)?;
    let Some((ToAgent::Go, _)) = gate.receive().during(|| Step::Report)? else {
        // Nobody wants it any more, and nobody is left to be told.
        sys::exit_now(NOT_MADE)
    };
    // Defence::ClosedDescriptors: privileges::the_callers_descriptors_stay_outside.
    // Nothing but the three streams reaches the agent, whatever a library forgot to mark.
    sys::close_on_exec_from(3).during(|| Step::Execute)?;
    exec::replace(&plan.command).during(|| Step::Execute)
}

/// Pid 1 leads the jail's session, and the command is a process group of it.
///
/// Were the command the leader, its group would be orphaned, and the kernel drops the stop key's
/// signal to such a group (setpgid(2)).
fn lead_session(terminal: Option<&Terminal>) -> io::Result<()> {
    setsid()?;
    terminal.map_or(Ok(()), |terminal| sys::controlling_terminal(terminal.program.as_fd()))
}

/// The command's group becomes the terminal's foreground, and each stream that was a terminal is
/// this one. To be called while SIGTTOU is blocked, which stops a background group here.
fn take_terminal(plan: &Plan, program: &OwnedFd) -> io::Result<()> {
    tcsetpgrp(program, getpid())?;
    let [stdin, stdout, stderr] = plan.streams;
    if stdin == Stream::Terminal {
        dup2_stdin(program)?;
    }
    if stdout == Stream::Terminal {
        dup2_stdout(program)?;
    }
    if stderr == Stream::Terminal {
        dup2_stderr(program)?;
    }
    Ok(())
}

/// Signals arrive as readable events; none ends pid 1 by itself.
fn block_signals() -> io::Result<SignalFd> {
    let all = SigSet::all();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None)?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    Ok(SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Reaps, reports and forwards until the command or the supervisor ends.
fn serve(command: Pid, channel: &Channel, signals: &SignalFd) -> io::Result<u8> {
    let mut left = Left::Nobody;
    loop {
        let mut waits = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(channel.as_fd(), PollFlags::POLLIN),
        ];
        let patience = match left {
            Left::Nobody => PollTimeout::NONE,
            Left::Somebody => PollTimeout::ZERO,
        };
        match poll(&mut waits, patience) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        let asked = waits[1].any().unwrap_or(true);
        while signals.read_signal()?.is_some() {}
        match reap(command, channel)? {
            Reaped::Command(code) => return Ok(code),
            Reaped::Others(more) => left = more,
        }
        if asked {
            match channel.try_receive::<ToJail>() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => match received? {
                    Some((request, _)) => obey(request, command),
                    // Defence::Lifeline: lifetime::a_storm_of_forks_ends_with_its_supervisor.
                    // The supervisor is gone; so is everything here, at once.
                    None => return Ok(137),
                },
            }
        }
    }
}

/// How far [`reap`] came.
enum Reaped {
    /// The command is over, with this code.
    Command(u8),
    Others(Left),
}

/// Whether ended processes may still wait to be collected.
enum Left {
    Nobody,
    Somebody,
}

/// So many are collected before the supervisor is listened to again: a flood of short-lived
/// processes must not make pid 1 deaf.
const REAPED_AT_ONCE: usize = 256;

/// Collects whoever ended; the command's own end is the jail's.
fn reap(command: Pid, channel: &Channel) -> io::Result<Reaped> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::__WALL;
    for _ in 0..REAPED_AT_ONCE {
        match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => {
                let code = u8::try_from(code).unwrap_or(u8::MAX);
                channel.send(&FromJail::Exited { code }, &[])?;
                return Ok(Reaped::Command(code));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                channel.send(&FromJail::Signaled { signal: signal as i32 }, &[])?;
                let code = 128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0));
                return Ok(Reaped::Command(code));
            }
            // Whoever asked its parent to trace it would stop for good: pid 1 traces nobody. The
            // call fails for processes that stopped by themselves.
            Ok(WaitStatus::Stopped(pid, signal)) if ptrace::detach(pid, signal).is_ok() => {}
            Ok(WaitStatus::Stopped(pid, signal)) if pid == command => {
                channel.send(&FromJail::Stopped { signal: signal as i32 }, &[])?;
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => {
                return Ok(Reaped::Others(Left::Nobody));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(Reaped::Others(Left::Somebody))
}

/// A process that is gone by now needs no signal.
fn obey(request: ToJail, command: Pid) {
    let signal = |number| Signal::try_from(number).ok();
    match request {
        ToJail::Go => {}
        ToJail::SignalCommand(number) => drop(kill(command, signal(number))),
        ToJail::SignalGroup(number) => drop(killpg(command, signal(number))),
        ToJail::SignalAll(number) => drop(kill(Pid::from_raw(-1), signal(number))),
    }
}
