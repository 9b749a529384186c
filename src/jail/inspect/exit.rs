//! The inspection itself, at the end of a run or after a crash.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kvro_ledger::event::{AlertRaised, Quarantined};
use kvro_ledger::state::StateError;
use kvro_ledger::{Actor, Event, RunId, StateDir};
use nix::fcntl::OFlag;

use super::compare::compare;
use super::findings::{After, Kindred, shown};
use super::identity::Identity;
use super::launch::{self, Launch};
use super::moves::Moves;
use super::quarantine::Quarantine;
use super::reopen::Reopened;
use crate::policy::FileRules;
use crate::workspace::{FEW, Matches, ScanError, Seen, look};

/// How long the jail of a supervisor that was killed may take to die.
const DYING: Duration = Duration::from_secs(5);
/// Directories that were closed to their owner.
const MOST_CLOSED: usize = 10_000;

/// What an inspection found.
#[derive(Debug, Default, PartialEq)]
pub struct Left {
    pub events: Vec<(Actor, Event)>,
    /// Whether the record has to stay, because nothing could be inspected yet.
    pub keep: Keep,
}

/// What becomes of the record of the launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Keep {
    #[default]
    No,
    Yes,
}

/// Inspects what `run` left, whose jail is dead. Without a record nothing ran, and nothing is done.
#[must_use]
pub fn inspect(state: &StateDir, run: &RunId) -> Left {
    match Launch::read(state, run) {
        Ok(None) => Left::default(),
        Ok(Some(launch)) => Left::of(inspect_with(state, run, &launch)),
        Err(error) => Left::of(vec![not_inspected(&error.into())]),
    }
}

/// Inspects what the run of a dead supervisor left, once its jail has followed.
#[must_use]
pub fn inspect_dead(state: &StateDir, run: &RunId) -> Left {
    if let Ok(Some(launch)) = Launch::read(state, run)
        && !launch.pid_1.is_gone_within(DYING)
    {
        let detail = format!("the jail of {run} is still alive");
        let events = vec![alert(AlertRaised { what: NOT_INSPECTED.to_owned(), detail })];
        return Left { events, keep: Keep::Yes };
    }
    inspect(state, run)
}

/// Removes the record of a launch: its inspection is on record.
pub fn forget(state: &StateDir, run: &RunId) -> Result<(), StateError> {
    match state.remove_beside(run, launch::NAME) {
        Err(error) if error.is_missing() => Ok(()),
        removed => removed,
    }
}

const NOT_INSPECTED: &str = "not_inspected";

impl Left {
    fn of(events: Vec<(Actor, Event)>) -> Self {
        Self { events, keep: Keep::No }
    }
}

fn alert(alert: AlertRaised) -> (Actor, Event) {
    (Actor::Guard, Event::AlertRaised(alert))
}

fn not_inspected(error: &anyhow::Error) -> (Actor, Event) {
    alert(AlertRaised { what: NOT_INSPECTED.to_owned(), detail: format!("{error:#}") })
}

fn inspect_with(state: &StateDir, run: &RunId, launch: &Launch) -> Vec<(Actor, Event)> {
    let workspace = launch.workspace.0.as_path();
    let top = match open_same(workspace, &launch.place) {
        Ok(Some(top)) => top,
        Ok(None) => {
            let detail = format!("{} is gone, or is another directory now", shown(workspace));
            return vec![alert(AlertRaised { what: NOT_INSPECTED.to_owned(), detail })];
        }
        Err(error) => {
            let error = anyhow::Error::from(error).context(shown(workspace));
            return vec![not_inspected(&error)];
        }
    };
    let looked = launch.rules().map_err(anyhow::Error::from).and_then(|rules| {
        let view = View::take(launch, &rules, workspace, &top)?;
        Ok((rules, view))
    });
    match looked {
        Ok((rules, view)) => {
            let quarantine = Quarantine::new(state, run, workspace, &top);
            view.judge(launch, &rules, workspace, &quarantine)
        }
        Err(error) => vec![not_inspected(&error)],
    }
}

/// Opens the workspace if it is the one it was.
fn open_same(workspace: &Path, known: &Identity) -> io::Result<Option<OwnedFd>> {
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).bits();
    let opened = match File::options().read(true).custom_flags(flags).open(workspace) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        opened => opened?,
    };
    let is_same = Identity::of(&opened.metadata()?).is_same(known);
    Ok(is_same.then(|| opened.into()))
}

/// A workspace as it is now.
#[derive(Debug)]
struct View {
    seen: Seen,
    /// Files that say who runs them, and did not at launch.
    set_ids: Vec<PathBuf>,
    /// Held until everything is judged and moved.
    _reopened: Vec<Reopened>,
    closed: Vec<PathBuf>,
}

impl View {
    fn take(
        launch: &Launch,
        rules: &FileRules,
        workspace: &Path,
        top: &OwnedFd,
    ) -> anyhow::Result<Self> {
        let set_ids = Mutex::new(Vec::new());
        let on_file = |path: &Path| {
            // Only a look at each file tells; nothing else about it is asked.
            if let Ok(metadata) = fs::symlink_metadata(path)
                && metadata.mode() & 0o6000 != 0
                && (metadata.ctime(), metadata.ctime_nsec()) >= launch.taken
                && let Ok(below) = path.strip_prefix(workspace)
            {
                set_ids.lock().unwrap_or_else(PoisonError::into_inner).push(below.to_owned());
            }
        };
        let look_at =
            |root: &Path| -> Result<Seen, ScanError> { look(FEW, root, workspace, rules, on_file) };
        let mut seen = look_at(workspace)?;
        let (mut reopened, mut closed) = (Vec::new(), Vec::new());
        let mut tried: BTreeSet<PathBuf> = BTreeSet::new();
        loop {
            let unreadable = std::mem::take(&mut seen.unreadable);
            if unreadable.is_empty() {
                break;
            }
            for one in unreadable {
                let path = one.path.unwrap_or_else(|| workspace.to_owned());
                let below = path.strip_prefix(workspace).unwrap_or(&path).to_owned();
                if one.cause.kind() == io::ErrorKind::NotFound && path != workspace {
                    continue;
                }
                // What was closed at launch was covered, and is the host's.
                if launch.names.contains_key(&below.as_path().into()) {
                    continue;
                }
                // A walk shows some things twice.
                if !tried.insert(below.clone()) {
                    continue;
                }
                match Reopened::open(top, &below) {
                    Ok(Some(open)) if tried.len() < MOST_CLOSED => {
                        reopened.push(open);
                        seen.add(look_at(&path)?);
                    }
                    _ => closed.push(below),
                }
            }
        }
        seen.sights.settle(workspace);
        let mut set_ids = set_ids.into_inner().unwrap_or_else(PoisonError::into_inner);
        set_ids.sort_unstable();
        set_ids.dedup();
        Ok(Self { seen, set_ids, _reopened: reopened, closed })
    }

    fn judge(
        self,
        launch: &Launch,
        rules: &FileRules,
        workspace: &Path,
        quarantine: &Quarantine<'_>,
    ) -> Vec<(Actor, Event)> {
        let Seen { hidden, protected, sights, .. } = self.seen;
        let moves = Moves::find(launch, workspace);
        let matches = Matches::settle(hidden, protected);
        let compared = compare(launch, rules, &moves, workspace, &matches);
        let mut events = Vec::new();
        let mut stuck = Kindred::new("not_quarantined");
        let mut gone = BTreeSet::new();
        for planted in compared.planted {
            match quarantine.take(&planted.path) {
                Ok(kept) => {
                    let path = shown(&planted.path);
                    let event = Quarantined { path, rule: planted.rule, kept: shown(&kept) };
                    events.push((Actor::Guard, Event::Quarantined(event)));
                    gone.insert(planted.path);
                }
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    stuck.add(format!("{}: {error:#}", shown(&planted.path)));
                }
            }
        }
        let after = After { launch, workspace, sights: &sights, gone: &gone };
        let told = |what: &'static str, paths: &mut dyn Iterator<Item = String>| {
            let mut kindred = Kindred::new(what);
            paths.for_each(|path| kindred.add(path));
            kindred
        };
        let is_left = |path: &&PathBuf| !path.ancestors().any(|above| gone.contains(above));
        let moved =
            |(from, to): &(PathBuf, PathBuf)| format!("{} is now {}", shown(from), shown(to));
        let kinds = [
            stuck,
            told("protected_moved", &mut moves.0.iter().map(moved)),
            told("protected_changed", &mut compared.changed.iter().map(|path| shown(path))),
            told("set_id_file", &mut self.set_ids.iter().filter(is_left).map(|path| shown(path))),
            told(NOT_INSPECTED, &mut self.closed.iter().map(|path| shown(path))),
        ];
        let alerts = kinds.into_iter().flat_map(Kindred::into_alerts).chain(after.alerts());
        events.extend(alerts.map(alert));
        events
    }
}
