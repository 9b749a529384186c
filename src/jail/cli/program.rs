//! The program's entry: parses, dispatches, and turns what comes back into an exit code.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing_subscriber::EnvFilter;

use super::args::{Cli, Subcommands};
use super::{doctor, explain, kill, ledger, policy, profile, ps, run};
use crate::failure::{self, Failure};
use crate::surroundings::Surroundings;

/// Runs the program on its command line.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let second: Option<&str> = args.get(1).and_then(|word| word.to_str());
    if second == Some(kvro_sandbox::STAGE_ARGUMENT) {
        let numbers: Vec<String> =
            args.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
        return ExitCode::from(kvro_sandbox::run_stage(&numbers));
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &args),
    };
    let (mut out, mut notes) = (io::stdout(), io::stderr());
    match dispatch(cli, &mut out, &mut notes) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let loud = if notes.is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
            let text = failure.to_string();
            for (number, line) in text.lines().enumerate() {
                let mark = if number == 0 {
                    format!("{}error:{} ", loud.0, loud.1)
                } else {
                    String::new()
                };
                drop(writeln!(notes, "kvro-jail: {mark}{line}"));
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Help and version are no errors; a bare run answers a wrong flag with 125, a subcommand with 2.
fn usage(error: &clap::Error, args: &[OsString]) -> ExitCode {
    // Nothing can be done about a closed stream here.
    drop(error.print());
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let names = Cli::command();
    let is_other = args.get(1).and_then(|word| word.to_str()).is_some_and(|word| {
        word != "run" && names.get_subcommands().any(|command| command.get_name() == word)
    });
    ExitCode::from(if is_other { 2 } else { failure::SETUP })
}

fn dispatch(cli: Cli, out: &mut dyn Write, notes: &mut dyn Write) -> Result<u8, Failure> {
    let surroundings = Surroundings::of_this_process().map_err(Failure::setup)?;
    let state = surroundings.state_dir();
    let Some(command) = cli.command else {
        log(cli.run.verbose);
        return run::run(&cli.run, &surroundings, out, notes);
    };
    match command {
        Subcommands::Run(args) => {
            log(args.verbose);
            return run::run(&args, &surroundings, out, notes);
        }
        Subcommands::Doctor(args) => doctor::run(&args, &surroundings, out),
        Subcommands::Explain(args) => explain::run(&args, &surroundings, out),
        Subcommands::Policy(args) => policy::run(&args, &surroundings, out),
        Subcommands::Profile(args) => profile::run(&args, out),
        Subcommands::Ledger(args) => ledger::run(&args, &state, out),
        Subcommands::Ps(args) => ps::run(&args, &state, out),
        Subcommands::Kill(args) => kill::run(&args, &state, out),
        Subcommands::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "kvro-jail", &mut &mut *out);
            Ok(0)
        }
        Subcommands::Man => man(out),
    }
    .map_err(|error| Failure { code: 1, error, hint: None })
}

fn man(out: &mut dyn Write) -> anyhow::Result<u8> {
    clap_mangen::Man::new(Cli::command()).render(&mut &mut *out)?;
    Ok(0)
}

/// Logs to stderr, `KVRO_LOG` over `-v`; never to the streams of the agent, which in a terminal
/// are the jail's own.
fn log(verbose: u8) {
    let level = match verbose {
        0 => "off",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("KVRO_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}
