//! The stub provider as a program: prints one line with its ports, answers until its standard
//! input closes, then prints what it counted.
//!
//! Waiting on the input ties its life to whoever started it: a script that dies takes it along.

#[path = "mod.rs"]
mod stub;

use std::io::{self, Read as _, Write as _};

fn main() -> anyhow::Result<()> {
    let settings = stub::Settings::from_arguments(std::env::args().skip(1))?;
    let stub = stub::Stub::start(settings)?;
    let mut out = io::stdout();
    writeln!(out, "{}", serde_json::to_string(stub.ready())?)?;
    out.flush()?;

    io::stdin().read_to_end(&mut Vec::new())?;
    writeln!(out, "{}", serde_json::to_string(&stub.totals())?)?;
    Ok(())
}
