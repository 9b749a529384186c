//! What the ledger costs: many appends beside plain writes of the same bytes, and one entry made
//! durable beside a bare fdatasync of as many bytes, in one run.
//!
//! `cargo bench --bench append` prints medians and median ratios. It is no test: a shared disk is
//! too noisy for a verdict. Both sides of a pair end in one fdatasync.

mod figures;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use kvro_ledger::event::{Basis, CallKind, Cost, InferenceRequested, InferenceSettled, TokenUsage};
use kvro_ledger::verify::{Outcome, verify_run};
use kvro_ledger::{Actor, Clock, Event, Ledger, PicoUsd, Redactions, RunId, StateDir};

use figures::{median, millis};

const ROUNDS: u32 = 15;
const EVENTS: u32 = 20_000;
const PAIRS: u64 = 200;
const WARM_UP: u64 = 5;

fn main() -> anyhow::Result<()> {
    let place = tempfile::Builder::new().prefix("kvro-bench-").tempdir_in("/var/tmp")?;
    let scene = Scene { state: StateDir::open(&place.path().join("state"))?, place: place.path() };
    let mut out = io::stdout();

    let rounds: Vec<Round> =
        (0..ROUNDS).map(|round| scene.append(round)).collect::<Result<_, _>>()?;
    let each = |taken: Duration| taken.as_secs_f64() * 1e9 / f64::from(EVENTS);
    let own = median(rounds.iter().map(|round| each(round.ledger)));
    let other = median(rounds.iter().map(|round| each(round.plain)));
    let ratio = median(rounds.iter().map(Round::ratio));
    let a_second = 1e9 / own;
    writeln!(
        out,
        "an append: {own:.0} ns ({a_second:.0} events a second), a plain write {other:.0} ns, \
         ratio {ratio:.2} ({ROUNDS} rounds of {EVENTS})",
    )?;

    let pairs = scene.make_durable()?;
    let own = median(pairs.iter().map(|pair| millis(pair.ledger)));
    let other = median(pairs.iter().map(|pair| millis(pair.plain)));
    let ratio = median(pairs.iter().map(Round::ratio));
    writeln!(
        out,
        "a durable record: {own:.3} ms, a bare write and fdatasync {other:.3} ms, \
         ratio {ratio:.2} ({PAIRS} pairs)",
    )?;
    Ok(())
}

struct Scene<'p> {
    state: StateDir,
    place: &'p Path,
}

/// The same work by the ledger and without it.
struct Round {
    ledger: Duration,
    plain: Duration,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.ledger.as_secs_f64() / self.plain.as_secs_f64()
    }
}

impl Scene<'_> {
    /// Many events, the last of which is waited for; then its lines, each written as it is.
    fn append(&self, round: u32) -> anyhow::Result<Round> {
        let run = RunId::new(Timestamp::now(), round);
        let clock = Clock::system();
        let (ledger, recorder) = Ledger::open(&self.state, run.clone(), clock, Redactions::none())?;
        let events: Vec<Event> = (0..u64::from(EVENTS)).map(event).collect();
        let start = Instant::now();
        let mut events = events.into_iter();
        let last = events.next_back().context("no events")?;
        events.for_each(|event| recorder.record(Actor::Meter, event));
        recorder.record_durably(Actor::Meter, last)?;
        let by_ledger = start.elapsed();
        ledger.close()?;
        self.verify(&run, u64::from(EVENTS))?;

        let text = fs::read(self.state.ledger_path(&run))?;
        let mut file = self.plain_file()?;
        let start = Instant::now();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            file.write_all(line)?;
        }
        file.sync_data()?;
        Ok(Round { ledger: by_ledger, plain: start.elapsed() })
    }

    /// Single entries, each waited for, and as many bytes after each.
    fn make_durable(&self) -> anyhow::Result<Vec<Round>> {
        let run = RunId::new(Timestamp::now(), ROUNDS);
        let clock = Clock::system();
        let (ledger, recorder) = Ledger::open(&self.state, run.clone(), clock, Redactions::none())?;
        let path = self.state.ledger_path(&run);
        let mut file = self.plain_file()?;
        let mut pairs = Vec::new();
        let mut bytes = 0;
        for number in 0..WARM_UP + PAIRS {
            let event = event(number);
            let start = Instant::now();
            recorder.record_durably(Actor::Meter, event)?;
            let by_ledger = start.elapsed();

            let before = std::mem::replace(&mut bytes, fs::metadata(&path)?.len());
            ensure!(bytes > before, "an entry is said to be durable and not there");
            let line = vec![b'x'; usize::try_from(bytes - before)?];
            let start = Instant::now();
            file.write_all(&line)?;
            file.sync_data()?;
            pairs.push(Round { ledger: by_ledger, plain: start.elapsed() });
        }
        ledger.close()?;
        self.verify(&run, WARM_UP + PAIRS)?;
        Ok(pairs.split_off(usize::try_from(WARM_UP)?))
    }

    fn plain_file(&self) -> io::Result<File> {
        File::create(self.place.join("plain"))
    }

    /// What was timed must be what is on record.
    fn verify(&self, run: &RunId, events: u64) -> anyhow::Result<()> {
        let found = verify_run(&self.state, run);
        ensure!(found.outcome() == Outcome::Intact, "the ledger does not verify: {found:?}");
        let entries: u64 = found.runs.iter().map(|run| run.entries).sum();
        ensure!(entries == events, "{entries} of {events} entries are on record");
        Ok(())
    }
}

/// What a metered session records most: a call, and what it cost.
fn event(number: u64) -> Event {
    let (call, model) = (number / 2 + 1, "claude-opus-5-5".to_owned());
    if number.is_multiple_of(2) {
        return Event::InferenceRequested(InferenceRequested {
            call,
            provider: "anthropic".to_owned(),
            operation: "chat".to_owned(),
            model,
            server: "api.anthropic.com".to_owned(),
            reserved_usd: Some(PicoUsd::new(48_125_000_000)),
            request_bytes: 1_000,
        });
    }
    Event::InferenceSettled(InferenceSettled {
        call,
        model,
        kind: CallKind::Turn,
        status: 200,
        usage: TokenUsage { input: 1_000, cache_read: 3_000, output: 40, ..TokenUsage::default() },
        context_tokens: 4_000,
        cost_usd: Cost::Known(PicoUsd::new(16_900_000_000)),
        basis: Basis::Reported,
        duration_ms: 850,
        first_byte_ms: Some(420),
    })
}
