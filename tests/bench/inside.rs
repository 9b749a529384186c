//! The part of a benchmark that runs where something is timed: in a jail, or beside it.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use nix::time::{ClockId, clock_gettime};

use crate::figures::{median, millis};
use crate::place::{Place, new_command};
use crate::spent::spent;

/// The first argument of a process that is this part.
const ARGUMENT: &str = "inside";

/// So often a command runs in one place, after once to warm up.
const RUNS: usize = 3;

/// What a command took, in milliseconds: medians of [`RUNS`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) wall: f64,
    /// Of the command and all that it waited for.
    pub(crate) cpu: f64,
}

/// This program, where a jail shows it.
#[derive(Debug)]
pub(crate) struct Inside(PathBuf);

impl Inside {
    pub(crate) fn put(place: &Place) -> io::Result<Self> {
        let path = place.path("inside");
        fs::copy(env::current_exe()?, &path)?;
        Ok(Self(path))
    }

    /// This part in a jail; its words are still to come.
    pub(crate) fn jailed(&self, place: &Place) -> Command {
        let path = self.0.to_string_lossy();
        let mut command = place.jail(&["--read", &path], &[]);
        command.arg(&self.0).arg(ARGUMENT);
        command
    }

    /// The same on the bare host.
    pub(crate) fn bare(&self, place: &Place) -> Command {
        let mut command = place.command(&self.0);
        command.arg(ARGUMENT);
        command
    }
}

/// What `words` take in `dir`.
pub(crate) fn time(mut part: Command, words: &[&str], dir: &Path) -> anyhow::Result<Took> {
    let said = answer(part.arg("time").args(words).current_dir(dir))?;
    let (wall, cpu) = said.split_once(' ').context("no two figures")?;
    Ok(Took { wall: wall.parse()?, cpu: cpu.parse()? })
}

/// How long a file takes to make in `dir`, in milliseconds: the median of `times`.
pub(crate) fn create(mut part: Command, times: usize, dir: &Path) -> anyhow::Result<f64> {
    Ok(answer(part.args(["create", &times.to_string()]).current_dir(dir))?.parse()?)
}

/// The moment at which it runs, as [`now`] has it.
pub(crate) fn started(mut part: Command, dir: &Path) -> anyhow::Result<f64> {
    Ok(answer(part.arg("now").current_dir(dir))?.parse()?)
}

/// Milliseconds of a clock that a jail shares.
pub(crate) fn now() -> anyhow::Result<f64> {
    Ok(millis(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into()))
}

fn answer(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Does what the arguments ask for, where this process is such a part.
pub(crate) fn perform() -> Option<anyhow::Result<()>> {
    let mut words = env::args().skip(1);
    let is_part = words.next().is_some_and(|word| word == ARGUMENT);
    is_part.then(|| {
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let figures = match *words.as_slice() {
            ["now"] => now()?.to_string(),
            ["create", times] => created(times.parse()?)?.to_string(),
            ["time", program, ref rest @ ..] => timed(program, rest)?,
            _ => bail!("unknown words {words:?}"),
        };
        writeln!(io::stdout(), "{figures}")?;
        Ok(())
    })
}

fn timed(program: &str, rest: &[&str]) -> anyhow::Result<String> {
    let mut took = Vec::new();
    for _ in 0..=RUNS {
        let (start, before) = (Instant::now(), spent()?);
        let mut command = new_command(program.as_ref());
        // A search that finds nothing says so.
        command.args(rest).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        took.push((millis(start.elapsed()), spent()? - before));
    }
    let (walls, cpus): (Vec<f64>, Vec<f64>) = took.into_iter().skip(1).unzip();
    Ok(format!("{} {}", median(walls), median(cpus)))
}

fn created(times: usize) -> anyhow::Result<f64> {
    let mut took = Vec::new();
    for _ in 0..times {
        let start = Instant::now();
        drop(File::create_new("made")?);
        took.push(millis(start.elapsed()));
        fs::remove_file("made")?;
    }
    Ok(median(took))
}
