//! The side of a benchmark that runs in the jail, and the same outside: does a thing again and
//! again, and prints the nanoseconds that each took, then `done`.
//!
//! It stays alive until its standard input ends, so that its supervisor can be looked at.

use std::io::{self, Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::model::Model;

/// What makes the benchmark's own program a client, as its first argument.
pub(crate) const ARGUMENT: &str = "__client";
/// What it prints when it is through.
pub(crate) const DONE: &str = "done";
/// What goes before what is timed: the first request also pays for what is made once.
pub(crate) const WARM_UP: usize = 10;

/// With its JSON and its headers a request of about 1 KB.
const PROMPT: usize = 750;

/// `ask ADDRESS COUNT` or `look-up COUNT`.
pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    let taken = match words {
        [ask, address, count] if ask == "ask" => requests(address, count.parse()?)?,
        [look_up, count] if look_up == "look-up" => refusals(count.parse()?)?,
        _ => bail!("no client does {words:?}"),
    };
    let mut out = io::stdout().lock();
    for one in taken {
        writeln!(out, "{}", one.as_nanos())?;
    }
    writeln!(out, "{DONE}")?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Requests on one connection, each answered before the next.
fn requests(address: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
    let bundle = std::env::var_os("SSL_CERT_FILE").context("SSL_CERT_FILE names no bundle")?;
    let model = Model::new(address, bundle.as_ref())?;
    let mut line = model.dial()?;
    let prompt = "x".repeat(PROMPT);
    let mut taken = Vec::new();
    for number in 0..WARM_UP + count {
        let start = Instant::now();
        let answer = line.ask(&prompt)?;
        taken.push(start.elapsed());
        ensure!(answer == "200 pong", "request {number} was answered {answer}");
    }
    line.hang_up()?;
    Ok(taken.split_off(WARM_UP))
}

/// Questions for names that nobody allows, each another one.
fn refusals(count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut taken = Vec::new();
    for number in 0..count {
        // Reserved for examples (RFC 2606): no server has it.
        let name = format!("refused-{number}.example");
        let start = Instant::now();
        let answer = (name.as_str(), 443).to_socket_addrs();
        taken.push(start.elapsed());
        ensure!(answer.is_err(), "{name} was not refused");
    }
    Ok(taken)
}
