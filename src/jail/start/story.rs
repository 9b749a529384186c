//! A run from its first event to its last.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use kvro_ledger::event::{
    EndedBy, IsolationApplied, IsolationDegraded, Layer, RunEnded, RunStarted,
};
use kvro_ledger::{Actor, Clock, Event, Ledger, Recorder, RunId, StateDir};
use kvro_proxy::price::{PriceRow, PriceTable};
use kvro_proxy::{AddressBook, Door, Listeners};
use kvro_sandbox::{Plan, Stage, Starting, landlock_abi, landlock_missing};
use nix::unistd::getuid;
use tracing::debug;

use super::door;
use super::jail::{Launched, bring_up};
use super::kit::Kit;
use super::say::Say;
use super::secrets::redactions;
use crate::budget::{Budget, KillSwitch};
use crate::failure::{self, Failure};
use crate::inspect::{self, Before, Keep, Launch, Process, RecordError};
use crate::plan::{Caches, Layers};
use crate::policy::{Level, Loaded};
use crate::supervise::{Cause, EndRequests, Lived, Outcome, Session, Status, live, streams};
use crate::surroundings::Surroundings;
use crate::workspace::{Survey, Watched};

/// A run as it was asked for.
#[derive(Debug)]
pub struct Request<'r> {
    pub run: &'r RunId,
    pub surroundings: &'r Surroundings,
    pub workspace: &'r Path,
    pub loaded: &'r Loaded,
    pub command: &'r [OsString],
    pub grace: Duration,
}

/// Where a run is kept and said.
pub struct Desk<'d> {
    pub state: &'d StateDir,
    pub clock: &'d Clock,
    pub say: Say,
    pub notes: &'d mut dyn Write,
}

impl fmt::Debug for Desk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("state", self.state).finish_non_exhaustive()
    }
}

/// What to do when nothing can be put on record.
pub const STATE_HINT: &str = "what happens in a jail must be on record: make the state directory \
                              ($XDG_STATE_HOME, else ~/.local/state) writable for you alone, or \
                              free some space";

/// Runs `request` to its end; everything that happened is in the closed ledger then.
///
/// `early` is a stage that was started ahead. An error means that nothing was run.
pub fn run(
    request: &Request<'_>,
    early: Option<Stage>,
    desk: &mut Desk<'_>,
) -> Result<Outcome, Failure> {
    let layers = Layers::take(desk.state.path(), request.workspace).map_err(Failure::setup)?;
    let redactions = redactions(request).map_err(Failure::setup)?;
    let (run, clock) = (request.run.clone(), desk.clock.clone());
    let (ledger, recorder) = Ledger::open(desk.state, run, clock, redactions)
        .map_err(|error| Failure::setup(error).with_hint(STATE_HINT))?;
    let started = Instant::now();
    recorder.record(Actor::Supervisor, Event::RunStarted(run_started(request)));
    let told = tell(request, early, &layers, &recorder, desk);
    let outcome = match &told {
        Ok(lived) => lived.outcome.clone(),
        Err(failure) => Outcome {
            code: failure.code,
            ended_by: match failure.code {
                failure::FAILED => EndedBy::Failure,
                _ => EndedBy::Setup,
            },
            reason: format!("{:#}", failure.error),
        },
    };
    let duration = started.elapsed();
    inspect_left(request.run, desk.state, &recorder);
    let ended = RunEnded {
        exit_code: outcome.code,
        ended_by: outcome.ended_by,
        reason: outcome.reason,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    };
    recorder.record(Actor::Supervisor, Event::RunEnded(ended));
    let closed = ledger.close();
    let Lived { outcome, last_look } = told?;
    // It goes while what the run left is inspected.
    if let Some(last_look) = last_look {
        last_look.wait();
    }
    // The run happened; that its record is incomplete must not look like success.
    match closed {
        Ok(_) => Ok(outcome),
        Err(error) => Err(Failure::during_run(error)),
    }
}

fn tell(
    request: &Request<'_>,
    early: Option<Stage>,
    layers: &Layers,
    recorder: &Recorder,
    desk: &mut Desk<'_>,
) -> Result<Lived, Failure> {
    let command = request.command.first().map(OsString::as_os_str);
    let mut kit = Kit::gather(request.surroundings, request.loaded, request.workspace, command)
        .map_err(Failure::setup)?;
    debug!(masks = kit.masks.len(), "looked over the workspace and the home");
    let streams = streams();
    let survey = Arc::new(std::mem::take(&mut kit.survey));
    let state = desk.state;
    let watched = kit.view.watched.as_slice();
    let keep = |plan: &Plan, pid_1: BorrowedFd<'_>| {
        keep_launch(request, state, &survey, watched, plan, pid_1)
    };
    let (launched, kept) = bring_up(request, &kit, layers, streams, early, keep, desk)?;
    debug!("the jail is made");
    let applied = Event::IsolationApplied(isolation(&launched, request.loaded.policy.require));
    let applied = recorder.durable(Actor::Sandbox, applied);
    degraded(&launched, recorder);
    let ends = EndRequests::default();
    watch_ledger(recorder, ends.clone());
    let budget = Arc::new(budget(request, recorder, &ends, desk.say).map_err(Failure::setup)?);
    let book = Arc::new(AddressBook::default());
    let net = &request.loaded.policy.net;
    let config = door::config(net, kit.extra_ca, kit.ca, Arc::clone(&book));
    let config = config.map_err(Failure::setup)?;
    let Launched { mut starting, plan, .. } = launched;
    let listeners = listeners(&mut starting);
    let gate: Arc<dyn kvro_proxy::gate::Gate> = Arc::<Budget>::clone(&budget);
    let door = Door::open(config, listeners, gate, recorder.clone()).map_err(Failure::setup)?;
    desk.say.line(desk.notes, &opening_line(request, desk.state));
    let session = Session {
        starting,
        masks: &plan.masks,
        guarded: &plan.guards,
        names: kit.guards.into_iter().map(|guarding| guarding.names).collect(),
        workspace: request.workspace,
        door,
        door_ports: plan.door_ports.clone(),
        book,
        recorder: recorder.clone(),
        ends,
        streams,
        grace: request.grace,
        max_wall: request.loaded.policy.limits.max_wall,
        program: plan.command.program.to_string_lossy().into_owned(),
    };
    let status = status(request, desk.clock.now().to_string(), budget);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime").map_err(Failure::setup)?;
    let run_dir = desk.state.run_dir(request.run);
    debug!("the door is open");
    // Nothing runs before what it runs in is on record.
    applied.wait().map_err(Failure::setup)?;
    kept.wait().map_err(|error| Failure::setup(error).with_hint(STATE_HINT))?;
    debug!("the isolation is on record, and what was there before the run");
    let lived = runtime.block_on(live(session, desk.state, &run_dir, status));
    // Connections in flight end here; each settles what it may have cost.
    runtime.shutdown_timeout(Duration::from_secs(5));
    debug!("nothing of the jail is alive");
    lived.context("the run could not be supervised").map_err(Failure::during_run)
}

/// Writes down what is there at launch, while the jail is made whose pid 1 is `pid_1`.
fn keep_launch(
    request: &Request<'_>,
    state: &StateDir,
    survey: &Arc<Survey>,
    watched: &[Watched],
    plan: &Plan,
    pid_1: BorrowedFd<'_>,
) -> Result<Keeping, Failure> {
    let pid_1 = Process::of(pid_1);
    let pid_1 = pid_1.context("cannot tell the jail's pid 1").map_err(Failure::setup)?;
    let (state, run, survey) = (state.clone(), request.run.clone(), Arc::clone(survey));
    let watched = watched.to_vec();
    let workspace = request.workspace.to_owned();
    let files = request.loaded.policy.files.clone();
    let guarded = plan.guards.iter().find(|guarded| guarded.root == workspace);
    let views = guarded.into_iter().flat_map(|guarded| &guarded.views);
    let guarded = views.map(|view| view.path.clone()).collect();
    let keep = move || {
        // That of a jail that could not be made.
        inspect::forget(&state, &run).map_err(RecordError::State)?;
        let before = Before {
            workspace: &workspace,
            files: &files,
            survey: &survey,
            guarded: &guarded,
            watched: &watched,
            pid_1,
        };
        Launch::keep(&state, &run, before)
    };
    thread::Builder::new()
        .name("launch-record".to_owned())
        .spawn(keep)
        .map(|keeping| Keeping(Some(keeping)))
        .map_err(Failure::setup)
}

/// The record of the launch on its way to the disk.
#[derive(Debug)]
struct Keeping(Option<JoinHandle<Result<(), RecordError>>>);

impl Keeping {
    fn wait(mut self) -> anyhow::Result<()> {
        let Some(keeping) = self.0.take() else { return Ok(()) };
        keeping.join().map_err(|_panic| anyhow!("the record of the launch broke"))??;
        Ok(())
    }
}

impl Drop for Keeping {
    /// Where nothing is run after all, the record is whole before it is read.
    fn drop(&mut self) {
        drop(self.0.take().map(JoinHandle::join));
    }
}

/// Inspects what the run left. The record of the launch goes when what was found is on record.
fn inspect_left(run: &RunId, state: &StateDir, recorder: &Recorder) {
    let left = inspect::inspect(state, run);
    let receipts: Vec<_> =
        left.events.into_iter().map(|(actor, event)| recorder.durable(actor, event)).collect();
    let is_on_record = receipts.into_iter().all(|receipt| receipt.wait().is_ok());
    if is_on_record && left.keep == Keep::No {
        // What stays is read again after a crash only, and the run is closed.
        drop(inspect::forget(state, run));
    }
    debug!("what the run left is inspected");
}

fn run_started(request: &Request<'_>) -> RunStarted {
    RunStarted {
        command: words(request.command),
        workspace: request.workspace.to_string_lossy().into_owned(),
        profile: request.loaded.profile.agent.name.clone(),
        policy: request.loaded.layers.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uid: getuid().as_raw(),
        pid: std::process::id(),
    }
}

fn words(command: &[OsString]) -> Vec<String> {
    command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn isolation(launched: &Launched, level: Level) -> IsolationApplied {
    let identity = launched.person.identity;
    let (inside, kernel) = (identity.inside.uid, identity.kernel.uid);
    let abi = landlock_abi();
    let layer = |name: &str, detail: String| Layer { name: name.to_owned(), detail };
    let caches = match launched.caches {
        Caches::Layered => "writable in a private layer",
        Caches::ReadOnly => "read-only",
    };
    IsolationApplied {
        level: level.to_string(),
        layers: vec![
            layer("user_namespace", format!("uid {inside}, to the kernel uid {kernel}")),
            layer("mount_namespace", format!("{} mounts", launched.plan.mounts.len())),
            layer("masks", format!("{} names", launched.plan.masks.len())),
            layer("guard", format!("{} directories", guarded_directories(&launched.plan))),
            layer("caches", caches.to_owned()),
            layer("network_namespace", format!("door on {:?}", launched.plan.door_ports)),
            layer("other_namespaces", "pid, ipc, uts, cgroup".to_owned()),
            layer("landlock", format!("abi {abi}")),
            layer("seccomp", "static filters, connect judged".to_owned()),
            layer("resources", launched.starting.jail.confinement().as_str().to_owned()),
        ],
        missing: landlock_missing(abi),
    }
}

fn guarded_directories(plan: &Plan) -> usize {
    plan.guards.iter().map(|guarded| guarded.views.len()).sum()
}

/// Says in the report what a root caller's agent goes without where its files cannot be idmapped.
fn degraded(launched: &Launched, recorder: &Recorder) {
    let identity = launched.person.identity;
    if identity.kernel.uid == 0 {
        let reason = "the workspace's filesystem cannot be idmapped: to the kernel the agent owns \
                      root's files, and a ceiling on processes does not hold it"
            .to_owned();
        let layer = "idmapped_mount".to_owned();
        let event = Event::IsolationDegraded(IsolationDegraded { layer, reason });
        recorder.record(Actor::Sandbox, event);
    }
}

/// A run that cannot be recorded any more is ended.
fn watch_ledger(recorder: &Recorder, ends: EndRequests) {
    recorder.on_failure(move |error| {
        let reason = format!("the ledger cannot be written: {error}");
        ends.now(Cause::Failure(reason));
    });
}

#[derive(Debug)]
struct Switch {
    ends: EndRequests,
    say: Say,
}

impl KillSwitch for Switch {
    fn limit_reached(&self, _limit: &str, message: &str) {
        self.ends.soon(Cause::Limit(message.to_owned()));
    }

    fn refused_again(&self) {
        self.ends.hurry();
    }

    fn warned(&self, words: &str) {
        self.say.during_run(&format!("warning: {words}"));
    }
}

fn budget(
    request: &Request<'_>,
    recorder: &Recorder,
    ends: &EndRequests,
    say: Say,
) -> anyhow::Result<Budget> {
    let policy = &request.loaded.policy;
    let rows: Vec<PriceRow> = policy.prices.iter().map(|entry| entry.value.typed()).collect();
    let mut own = PriceTable::default();
    for row in &rows {
        own.put(row).with_context(|| format!("the price of {} is no price", row.model))?;
    }
    let prices = move || {
        // A test reads the built-in table. Were it broken all the same, nothing would be priced,
        // and what is not priced is refused under a ceiling.
        let mut table = PriceTable::builtin().unwrap_or_default();
        for row in &rows {
            drop(table.put(row));
        }
        table
    };
    let kill = Arc::new(Switch { ends: ends.clone(), say });
    Ok(Budget::new(policy.limits.clone(), prices, recorder.clone(), kill))
}

fn listeners(starting: &mut Starting) -> Listeners {
    let door = &mut starting.door;
    let tcp = std::mem::take(&mut door.tcp);
    Listeners {
        tcp: tcp.into_iter().map(|(port, fd)| (port, fd.into())).collect(),
        dns_udp: std::mem::take(&mut door.dns_udp).into_iter().map(Into::into).collect(),
        dns_tcp: std::mem::take(&mut door.dns_tcp).into_iter().map(Into::into).collect(),
    }
}

fn opening_line(request: &Request<'_>, state: &StateDir) -> String {
    let layers: Vec<&str> =
        request.loaded.layers.iter().map(|layer| layer.source.as_str()).collect();
    let policy = layers.join(" over ");
    format!(
        "run {} in {}, policy {policy}, profile {}; ledger {}",
        request.run,
        request.workspace.display(),
        request.loaded.profile.agent.name,
        state.ledger_path(request.run).display()
    )
}

fn status(
    request: &Request<'_>,
    started: String,
    budget: Arc<Budget>,
) -> impl Fn() -> Status + use<> {
    let (run, command) = (request.run.to_string(), words(request.command));
    let workspace = request.workspace.to_string_lossy().into_owned();
    move || {
        let used = budget.used();
        Status {
            run: run.clone(),
            pid: std::process::id(),
            command: command.clone(),
            workspace: workspace.clone(),
            started: started.clone(),
            turns: used.turns,
            cost_usd: used.cost.to_string(),
        }
    }
}
