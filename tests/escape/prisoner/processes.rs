//! Probes of what a process is, holds and sees of others.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

use nix::sys::ptrace;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getegid, geteuid};

use super::{number, ok};
use crate::identity::new_command;
use crate::raw::{self, Side};

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    Some(match *words {
        ["status", field] => status(field),
        ["who"] => Ok(format!("{}:{}", geteuid(), getegid())),
        ["root-by-file"] => root_by_file(),
        ["descriptors"] => descriptors(),
        ["core-limit"] => core_limit(),
        ["raise-core-limit"] => raise_core_limit(),
        ["variable", name] => Ok(std::env::var(name).unwrap_or_else(|_| "not set".to_owned())),
        ["run", program, ref words @ ..] => run(program, words),
        ["look-for-backwards", word] => look_for(&word.chars().rev().collect::<String>()),
        ["signal", pid] => signal(number(pid).ok()?),
        ["signal-own"] => signal_own(),
        ["trace", pid] => trace(number(pid).ok()?),
        ["trace-own"] => trace_own(),
        ["key", name] => key(name),
        ["shared-memory", key] => {
            number(key).and_then(|key| raw::shared_memory(key, 0).map(|_| ok()))
        }
        ["abort"] => std::process::abort(),
        _ => return None,
    })
}

/// A line of `/proc/self/status`, read by the process that it is about.
fn status(field: &str) -> io::Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).ok_or(io::ErrorKind::NotFound.into())
}

/// Whether this program, which belongs to root and says set-uid, made its caller root.
fn root_by_file() -> io::Result<String> {
    let capabilities = status("CapEff")?;
    let is_root = geteuid().is_root() || capabilities.bytes().any(|digit| digit != b'0');
    Ok(if is_root { "root" } else { "nobody special" }.to_owned())
}

/// What another program answers, which is a prisoner too.
fn run(program: &str, words: &[&str]) -> io::Result<String> {
    let output = new_command(program.as_ref()).arg(super::ARGUMENT).args(words).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// What the descriptors above the three streams lead to.
fn descriptors() -> io::Result<String> {
    let mut targets = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number: i32 = number(&name.to_string_lossy())?;
        let target = fs::read_link(Path::new("/proc/self/fd").join(&name))?;
        // The listing itself is one of them.
        if number > 2 && target != Path::new(&format!("/proc/{}/fd", std::process::id())) {
            targets.push(target.display().to_string());
        }
    }
    Ok(if targets.is_empty() { "none".to_owned() } else { targets.join(" ") })
}

fn core_limit() -> io::Result<String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    Ok(format!("{soft} {hard}"))
}

fn raise_core_limit() -> io::Result<String> {
    setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY)?;
    Ok(ok())
}

/// Looks for `word` in every environment and command line that can be read.
fn look_for(word: &str) -> io::Result<String> {
    let mut read = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        for name in ["environ", "cmdline"] {
            let Ok(bytes) = fs::read(entry.path().join(name)) else { continue };
            read += 1;
            if bytes.windows(word.len()).any(|window| window == word.as_bytes()) {
                return Ok("found".to_owned());
            }
        }
    }
    Ok(if read > 0 { "not found" } else { "nothing to read" }.to_owned())
}

fn signal(pid: i32) -> io::Result<String> {
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    Ok(ok())
}

fn waiting_child() -> io::Result<Pid> {
    match raw::fork()? {
        Side::Child => loop {
            nix::unistd::pause();
        },
        Side::Parent { child } => Ok(Pid::from_raw(child)),
    }
}

fn signal_own() -> io::Result<String> {
    let child = waiting_child()?;
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    Ok(ok())
}

fn trace(pid: i32) -> io::Result<String> {
    ptrace::seize(Pid::from_raw(pid), ptrace::Options::empty())?;
    Ok(ok())
}

fn trace_own() -> io::Result<String> {
    let child = waiting_child()?;
    let traced = ptrace::seize(child, ptrace::Options::PTRACE_O_EXITKILL);
    kill(child, Signal::SIGKILL)?;
    waitpid(child, Some(nix::sys::wait::WaitPidFlag::__WALL))?;
    traced?;
    Ok(ok())
}

fn key(name: &str) -> io::Result<String> {
    raw::find_key(&CString::new(name)?)?;
    Ok(ok())
}

/// How many processes that can be seen are dead and not waited for.
pub(super) fn zombies() -> io::Result<usize> {
    let mut dead = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in brackets, may hold anything; the state follows it.
        dead += usize::from(stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")));
    }
    Ok(dead)
}
