//! The prisoner: performs one probe and says what came of it.
//!
//! The same binary as the judge, run again with `__probe` as its first argument, so that nothing
//! depends on tools that a machine may lack. A probe answers `ok`, a word, or the name of an errno;
//! it never knows whether it is inside.

mod calls;
mod files;
mod lives;
mod names;
mod network;
mod processes;
mod race;
mod works;

use std::ffi::CString;
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, Stdio};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::identity::new_command;
use crate::raw;

pub(crate) use files::CANARY;
pub(crate) use lives::{GO, READY};
pub(crate) use names::{STORM, STORMED};
pub(crate) use race::Tally;

/// The first argument of a prisoner.
pub(crate) const ARGUMENT: &str = "__probe";

/// The key that a caller's keyring has in every world.
pub(crate) const KEY: &str = "kvro-canary";

/// What a probe answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) said: String,
    /// The probe's pid as it knew itself.
    pub(crate) pid: u32,
}

/// Performs `words`: probes one after the other (`each`), probes as somebody asks for them
/// (`converse`), a life of its own, or one probe; or becomes the program that follows `judged` or
/// `with-key NAME`.
pub(crate) fn serve(words: &[String]) -> ExitCode {
    let done = match words.split_first() {
        Some((name, probes)) if name == "each" => each(probes),
        Some((name, [])) if name == "converse" => converse(),
        Some((name, rest)) if name == "with-key" => with_key(rest),
        Some((name, rest)) if name == "judged" => judged(rest),
        Some((name, args)) if lives::is_life(name) => return lives::live(name, args),
        Some(_) => say(&one(words)),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs each probe in a process of its own: one that dies or changes itself spoils no other.
fn each(probes: &[String]) -> io::Result<()> {
    let program = std::env::current_exe()?;
    for probe in probes {
        let words: Vec<String> = serde_json::from_str(probe)?;
        let child = new_command(program.as_ref())
            .arg(ARGUMENT)
            .args(&words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let pid = child.id();
        let output = child.wait_with_output()?;
        let said = match output.status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => String::from_utf8_lossy(&output.stdout).trim_end().to_owned(),
        };
        say(&serde_json::to_string(&Answer { said, pid })?)?;
    }
    Ok(())
}

/// Performs what each line of the input says, until nobody asks any more. One process does all of
/// it and keeps what it has begun.
fn converse() -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let words: Vec<String> = serde_json::from_str(&line?)?;
        say(&one(&words))?;
    }
    Ok(())
}

/// Runs a program with a key in a keyring of its own, as a login leaves one behind.
fn with_key(words: &[String]) -> io::Result<()> {
    let [name, program, args @ ..] = words else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    match raw::join_keyring_with(&CString::new(name.as_str())?) {
        Err(error) if error.raw_os_error() != Some(Errno::ENOSYS as i32) => return Err(error),
        _ => {}
    }
    Err(new_command(program.as_ref()).args(args).exec())
}

/// Runs a program whose system calls somebody judges already.
fn judged(words: &[String]) -> io::Result<()> {
    let [program, args @ ..] = words else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    raw::be_judged()?;
    Err(new_command(program.as_ref()).args(args).exec())
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn one(words: &[String]) -> String {
    // No probe may reach the terminal of whoever runs the suite.
    nix::unistd::setsid().ok();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match perform(&words) {
        Ok(said) => said,
        Err(error) => match error.raw_os_error() {
            Some(errno) => errno_name(errno),
            None => format!("error: {error}"),
        },
    }
}

pub(crate) fn errno_name(errno: i32) -> String {
    format!("{:?}", Errno::from_raw(errno))
}

/// The answer of a probe that has nothing else to say.
fn ok() -> String {
    "ok".to_owned()
}

fn perform(words: &[&str]) -> io::Result<String> {
    let answered = [
        calls::perform,
        processes::perform,
        files::perform,
        names::perform,
        race::perform,
        network::perform,
    ];
    for perform in answered {
        if let Some(answer) = perform(words) {
            return answer;
        }
    }
    works::perform(words).unwrap_or_else(|| Err(io::Error::other("there is no such probe")))
}

fn number<T>(word: &str) -> io::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    word.parse().map_err(io::Error::other)
}
