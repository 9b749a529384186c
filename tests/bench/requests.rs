//! What the door costs: requests straight to a provider, and the same through the jail, in one run.
//!
//! `cargo bench --bench requests` prints medians and their difference, how soon a name is refused,
//! and the most memory that a supervisor held. It is no test: a shared machine is too noisy for a
//! verdict. Client, supervisor and provider share the machine's processors.

mod client;
mod figures;
#[path = "../support/agent/model.rs"]
mod model;
mod place;
#[path = "../support/stub/mod.rs"]
mod stub;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use figures::{median, millis, percentile};
use place::Place;
use stub::{Settings, Stub};

const ROUNDS: usize = 10;
/// Timed requests of a session; with the stub's usage they cost less than `CEILING`.
const CALLS: usize = 200;
const CEILING: [&str; 2] = ["--max-usd", "5"];
const NAMES: usize = 50;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, words)) = words.split_first()
        && first == client::ARGUMENT
    {
        return client::run(words);
    }

    let scene = Scene::set()?;
    let [mut direct, mut door, mut metered] = [const { Vec::new() }; 3];
    let mut peak = 0;
    for _ in 0..ROUNDS {
        direct.extend(scene.direct()?.taken);
        door.extend(scene.through_the_door(&[])?.taken);
        let session = scene.through_the_door(&CEILING)?;
        metered.extend(session.taken);
        peak = peak.max(session.peak_kib);
    }
    let refused = scene.refusals()?;

    let mut out = io::stdout();
    let straight = median(direct.iter().copied());
    for (way, taken) in [("", &door), (", under a money ceiling", &metered)] {
        let (through, late) =
            (median(taken.iter().copied()), percentile(taken.iter().copied(), 99));
        let more = through - straight;
        writeln!(
            out,
            "a request of 1 KB{way}: straight {straight:.3} ms, through the jail {through:.3} ms, \
             {more:.3} ms more (99 % within {late:.3} ms; {ROUNDS} rounds of {CALLS})",
        )?;
    }
    let (middle, slowest) = (median(refused.iter().copied()), percentile(refused, 100));
    writeln!(out, "a name refused: {middle:.3} ms, slowest {slowest:.3} ms ({NAMES} names)")?;
    writeln!(out, "the supervisor of a metered session: at most {peak} KiB of memory")?;
    Ok(())
}

/// A provider, and a jail whose only way leads to it.
struct Scene {
    place: Place,
    stub: Stub,
}

/// What came of one session.
struct Session {
    /// In milliseconds.
    taken: Vec<f64>,
    /// The most memory that the process we started ever held.
    peak_kib: u64,
}

impl Scene {
    fn set() -> anyhow::Result<Self> {
        let place = Place::new()?;
        let provider = place.path("provider");
        fs::create_dir(&provider)?;
        let words = ["--dir".to_owned(), provider.display().to_string()];
        let stub = Stub::start(Settings::from_arguments(words)?)?;
        fs::write(place.path("policy.toml"), policy_to(&stub))?;
        fs::copy(std::env::current_exe()?, place.path("home/work/client"))?;
        Ok(Self { place, stub })
    }

    fn direct(&self) -> anyhow::Result<Session> {
        let address = format!("127.0.0.1:{}", self.stub.ready().tls);
        let mut command = self.place.command("./client");
        command.args([client::ARGUMENT, "ask", &address, &CALLS.to_string()]);
        command.env("SSL_CERT_FILE", &self.stub.ready().ca);
        self.answered(command)
    }

    fn through_the_door(&self, options: &[&str]) -> anyhow::Result<Session> {
        let words = ["ask", "api.anthropic.com:443", &CALLS.to_string()];
        let session = self.answered(self.jailed(options, &words))?;
        // Each was read and metered, and none went by as a tunnel.
        let turns = &self.report()?["turns"];
        ensure!(*turns == json!(client::WARM_UP + CALLS), "{turns} turns are on record");
        Ok(session)
    }

    /// How long each refusal of a name took, in milliseconds.
    fn refusals(&self) -> anyhow::Result<Vec<f64>> {
        let session = run(self.jailed(&[], &["look-up", &NAMES.to_string()]))?;
        let report = self.report()?;
        let refused = report["refused"].as_array().context("the report names no refusals")?;
        let names = refused.iter().filter(|refused| refused["kind"] == "dns.refused");
        let names: BTreeSet<_> = names.filter_map(|refused| refused["what"].as_str()).collect();
        ensure!(names.len() == NAMES, "{} names are on record as refused", names.len());
        Ok(session.taken)
    }

    fn jailed(&self, options: &[&str], words: &[&str]) -> Command {
        let at = |name| self.place.path(name).display().to_string();
        let (policy, report) = (at("policy.toml"), at("report.json"));
        let options = [&["--policy", &policy, "--report", &report], options].concat();
        self.place.jail(&options, &[&["./client", client::ARGUMENT], words].concat())
    }

    /// Runs a client; the provider must have answered all of its requests and no other.
    fn answered(&self, command: Command) -> anyhow::Result<Session> {
        let before = self.stub.totals().generations;
        let session = run(command)?;
        let answered = self.stub.totals().generations - before;
        ensure!(json!(answered) == json!(client::WARM_UP + CALLS), "{answered} were answered");
        Ok(session)
    }

    fn report(&self) -> anyhow::Result<Value> {
        let report = fs::read(self.place.path("report.json")).context("there is no report")?;
        Ok(serde_json::from_slice(&report)?)
    }
}

/// Runs a client to its end, and looks at its supervisor when it is through.
fn run(mut command: Command) -> anyhow::Result<Session> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut taken = Vec::new();
    let mut peak_kib = None;
    for line in BufReader::new(stdout.context("no pipe")?).lines() {
        let line = line?;
        if line == client::DONE {
            peak_kib = Some(peak(child.id())?);
            break;
        }
        taken.push(millis(Duration::from_nanos(line.parse()?)));
    }
    drop(stdin);
    let status = child.wait()?;
    ensure!(status.success(), "the client did not do its work: {status}");
    Ok(Session { taken, peak_kib: peak_kib.context("the client was not through")? })
}

/// The most memory that the process has held, in KiB.
fn peak(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let words = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = words.trim().strip_suffix(" kB").context("the kernel does not say VmHWM")?;
    Ok(kib.parse()?)
}

fn policy_to(stub: &Stub) -> String {
    let (port, ca) = (stub.ready().tls, stub.ready().ca.display());
    format!(
        r#"version = 1
extends = ["builtin:default"]
[net]
allow = ["api.anthropic.com"]
danger_private = ["127.0.0.1/32"]
extra_ca = ["{ca}"]
[net.connect_to]
"api.anthropic.com:443" = "127.0.0.1:{port}"
"#
    )
}
