//! How long a launch takes, beside bubblewrap's, pair by pair in one run.
//!
//! `cargo bench --bench launch` prints medians and the median ratio. It is no test: a shared machine
//! is too noisy for a verdict. Bubblewrap gets every namespace and nothing else; kvro-jail everything
//! it does for `kvro-jail -- true`.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PAIRS: usize = 60;
const WARM_UP: usize = 5;

const BUBBLEWRAP: &[&str] = &[
    "bwrap",
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "true",
];

fn main() -> io::Result<()> {
    let place = tempfile::tempdir_in("/var/tmp")?;
    let (home, work) = (place.path().join("home"), place.path().join("home/work"));
    std::fs::create_dir_all(&work)?;
    let ours = || {
        let mut command = command(env!("CARGO_BIN_EXE_kvro-jail"), &work);
        command.args(["-q", "--", "true"]).env_clear();
        command.env("HOME", &home).env("PATH", "/usr/bin:/bin");
        command
    };
    let theirs = || {
        let mut command = command(BUBBLEWRAP[0], &work);
        command.args(&BUBBLEWRAP[1..]);
        command
    };
    for _ in 0..WARM_UP {
        time(ours())?;
        time(theirs())?;
    }
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        pairs.push((time(ours())?, time(theirs())?));
    }
    let own = median(pairs.iter().map(|(own, _)| own.as_secs_f64() * 1000.0));
    let other = median(pairs.iter().map(|(_, other)| other.as_secs_f64() * 1000.0));
    let ratio = median(pairs.iter().map(|(own, other)| own.as_secs_f64() / other.as_secs_f64()));
    let line = format!("kvro-jail {own:.2} ms, bubblewrap {other:.2} ms, ratio {ratio:.2}");
    writeln!(io::stdout(), "{line} ({PAIRS} pairs)")
}

#[expect(clippy::disallowed_methods, reason = "a benchmark starts what it times")]
fn command(program: &str, place: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(place).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn time(mut command: Command) -> io::Result<Duration> {
    let start = Instant::now();
    let status = command.status()?;
    let taken = start.elapsed();
    if status.success() { Ok(taken) } else { Err(io::Error::other(format!("{status}"))) }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
