//! `ledger show RUN --processes`: what ran, as a tree or as a list.

use std::io::Write;

use jiff::Timestamp;
use kvro_evidence::ProcessRecord;
use kvro_evidence::processes::{Process, Program};
use kvro_ledger::event::ProcessEnd;
use kvro_ledger::read::Lines;
use kvro_ledger::{RunId, StateDir};

use crate::report::{harmless, harmless_json};

/// Who lies deeper is shown no further to the right.
const DEEPEST: usize = 30;
/// So many letters of a command are shown; `--json` has them all.
const LONGEST: usize = 300;

pub(super) fn as_tree(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    let record = read(state, run)?;
    if !record.processes.is_empty() {
        writeln!(out, "    PID  ENDED           TIME  PROGRAM")?;
    }
    for (depth, process) in record.tree() {
        let indent = "  ".repeat(depth.min(DEEPEST));
        let (pid, end, time) = (process.pid, end(process), time(process));
        let mut programs = process.programs.iter().map(command);
        let first = programs.next().unwrap_or_else(|| "(fork)".to_owned());
        writeln!(out, "{pid:>7}  {end:<9}  {time:>9}  {indent}{first}")?;
        for next in programs {
            writeln!(out, "{:31}{indent}then {next}", "")?;
        }
    }
    for missed in &record.missed {
        let (what, reason) = (harmless(&missed.what), harmless(&missed.reason));
        writeln!(out, "not on record: {} {what} ({reason})", missed.count)?;
    }
    Ok(())
}

pub(super) fn as_json(state: &StateDir, run: &RunId, out: &mut dyn Write) -> anyhow::Result<()> {
    let record = serde_json::to_string_pretty(&read(state, run)?)?;
    writeln!(out, "{}", harmless_json(&record))?;
    Ok(())
}

fn read(state: &StateDir, run: &RunId) -> anyhow::Result<ProcessRecord> {
    let mut lines = Lines::open(state, run)?;
    let mut record = ProcessRecord::default();
    while let Some(entry) = lines.next_entry()? {
        record.take(&entry);
    }
    Ok(record)
}

fn end(process: &Process) -> String {
    match &process.end {
        Some(ProcessEnd::Exited { code }) => format!("exit {code}"),
        Some(ProcessEnd::Signaled { signal }) => harmless(signal).into_owned(),
        Some(ProcessEnd::Unknown) => "unknown".to_owned(),
        None => "-".to_owned(),
    }
}

fn time(process: &Process) -> String {
    let moment = |text: &str| text.parse::<Timestamp>().ok();
    let ended = process.ended.as_deref().and_then(moment);
    match ended.zip(moment(&process.started)) {
        Some((ended, started)) => {
            let millis = ended.duration_since(started).as_millis().max(0);
            format!("{}.{:03} s", millis / 1000, millis % 1000)
        }
        None => "-".to_owned(),
    }
}

/// `/usr/bin/dash [sh] -c 'make test'`: what really ran, the name it was given where that is
/// another, and the arguments.
fn command(program: &Program) -> String {
    let executable = program.executable.as_deref();
    let mut args = program.args.iter().map(String::as_str);
    let name = args.next();
    let file_name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let mut words = vec![executable.map_or_else(|| "?".to_owned(), word)];
    if let Some(name) = name.filter(|name| file_name(name) != executable.and_then(file_name)) {
        words.push(format!("[{}]", harmless(name)));
    }
    words.extend(args.map(word));
    if program.omitted_args_bytes > 0 {
        words.push(format!("(and {} bytes)", program.omitted_args_bytes));
    }
    let command = words.join(" ");
    match command.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command,
    }
}

/// A word as a shell would read it, with nothing in it that a terminal acts upon.
fn word(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.chars().all(|letter| letter.is_alphanumeric() || "%+,-./:=@_^".contains(letter));
    let harmless = harmless(text);
    if is_plain { harmless.into_owned() } else { format!("'{}'", harmless.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(executable: Option<&str>, args: &[&str], omitted_args_bytes: u64) -> String {
        command(&Program {
            executable: executable.map(str::to_owned),
            sha256: None,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            omitted_args_bytes,
            cwd: None,
            started: String::new(),
        })
    }

    #[test]
    fn a_command_is_shown_as_what_really_ran() {
        let make = shown(Some("/usr/bin/make"), &["make", "-j2", "a b", ""], 0);
        assert_eq!(make, "/usr/bin/make -j2 'a b' ''");
        // A name is the caller's choice.
        let disguised = shown(Some("/tmp/x"), &["cargo", "test"], 0);
        assert_eq!(disguised, "/tmp/x [cargo] test");
        assert_eq!(shown(None, &["sh", "it's"], 9), r"? [sh] 'it'\''s' (and 9 bytes)");
        assert_eq!(shown(Some("/bin/a"), &[], 0), "/bin/a");
    }

    #[test]
    fn a_command_cannot_paint_the_terminal_or_fill_it() {
        let evil = shown(Some("/bin/\x1b[2J"), &["\u{202e}", "\x07"], 0);
        assert_eq!(evil, "'/bin/\\u{1b}[2J' [\\u{202e}] '\\u{7}'");
        let long = shown(Some("/bin/a"), &["a"; 1000], 0);
        assert_eq!(long.chars().count(), LONGEST + 1);
    }
}
