//! A small scripted agent for the quickstart: it does what coding agents do on a bad day.
//!
//! It knows nothing of any jail. It reads a source file, looks into `.env`, edits production,
//! phones a server of its own, and then calls its model again and again, whatever it is told. It
//! prints what it met, so that the story is what happened and not what was expected.

mod model;

use std::fs;
use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;

use model::Model;

/// Between two turns: long enough to watch.
const PAUSE: Duration = Duration::from_millis(150);
/// Nobody's server: reserved names (RFC 6761) and documentation addresses (RFC 5737).
const OWN_SERVER: &str = "collector.example";
const BARE_ADDRESS: ([u8; 4], u16) = ([203, 0, 113, 7], 4444);

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout();
    read(&mut out, "src/main.rs")?;
    read(&mut out, ".env")?;
    overwrite(&mut out, "infra/production/main.tf")?;
    phone(&mut out)?;
    dial(&mut out)?;
    talk(&mut out)
}

fn read(out: &mut impl Write, path: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(text) => say(out, &format!("read {path}"), text.lines().next().unwrap_or("(empty)")),
        Err(error) => say(out, &format!("read {path}"), &error.to_string()),
    }
}

fn overwrite(out: &mut impl Write, path: &str) -> io::Result<()> {
    let outcome = match fs::write(path, "# the agent was here\n") {
        Ok(()) => "written".to_owned(),
        Err(error) => error.to_string(),
    };
    say(out, &format!("write {path}"), &outcome)
}

fn phone(out: &mut impl Write) -> io::Result<()> {
    let outcome = match (OWN_SERVER, 443).to_socket_addrs() {
        Ok(addresses) => format!("resolved to {:?}", addresses.collect::<Vec<_>>()),
        Err(error) => error.to_string(),
    };
    say(out, &format!("look up {OWN_SERVER}"), &outcome)
}

fn dial(out: &mut impl Write) -> io::Result<()> {
    let outcome = match TcpStream::connect_timeout(&BARE_ADDRESS.into(), Duration::from_secs(3)) {
        Ok(_) => "connected".to_owned(),
        Err(error) => error.to_string(),
    };
    let ([a, b, c, d], port) = BARE_ADDRESS;
    say(out, &format!("connect to {a}.{b}.{c}.{d}:{port}"), &outcome)
}

/// Calls the model without end: only something outside can stop it.
fn talk(out: &mut impl Write) -> anyhow::Result<()> {
    let bundle = std::env::var_os("SSL_CERT_FILE").context("SSL_CERT_FILE names no bundle")?;
    let model = Model::new("api.anthropic.com:443", bundle.as_ref())?;
    for turn in 1_u32.. {
        let outcome = match ask(&model, &format!("turn {turn}: is the work done?")) {
            Ok(answer) => answer,
            Err(error) => format!("{error:#}"),
        };
        say(out, &format!("ask the model ({turn})"), &outcome)?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Each turn dials anew: the door sees the many connections that short-lived tools make.
fn ask(model: &Model, prompt: &str) -> anyhow::Result<String> {
    let mut line = model.dial()?;
    let answer = line.ask(prompt)?;
    line.hang_up()?;
    Ok(answer)
}

fn say(out: &mut impl Write, what: &str, outcome: &str) -> io::Result<()> {
    writeln!(out, "agent: {what:<32} -> {outcome}")?;
    out.flush()
}
