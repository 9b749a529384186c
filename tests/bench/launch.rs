//! How long a launch takes, beside bubblewrap's, pair by pair in one run.
//!
//! `cargo bench --bench launch` prints medians and the median ratio. It is no test: a shared machine
//! is too noisy for a verdict. Bubblewrap gets every namespace and nothing else; kvro-jail everything
//! it does for `kvro-jail -- true`.

mod figures;
mod pairs;
mod place;

use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use figures::millis;
use pairs::Pairs;
use place::Place;

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
    let place = Place::new()?;
    let ours = || place.jail(&[], &["true"]);
    let theirs = || {
        let mut command = place.command(BUBBLEWRAP[0]);
        command.args(&BUBBLEWRAP[1..]);
        command
    };
    for _ in 0..WARM_UP {
        time(ours())?;
        time(theirs())?;
    }
    let mut pairs = Pairs::default();
    for _ in 0..PAIRS {
        pairs.add(millis(time(ours())?), millis(time(theirs())?));
    }
    writeln!(io::stdout(), "a launch, beside bubblewrap's: {pairs}")
}

fn time(mut command: Command) -> io::Result<Duration> {
    let start = Instant::now();
    let status = command.status()?;
    let taken = start.elapsed();
    if status.success() { Ok(taken) } else { Err(io::Error::other(format!("{status}"))) }
}
