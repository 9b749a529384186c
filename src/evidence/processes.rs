//! The processes of a run: what ran, as whose child, and how it ended.
//!
//! The field names are public. An end that is not on record is absent, one that nobody could know
//! is `unknown`; neither is ever an exit code.

use std::collections::HashMap;

use kvro_ledger::event::{ProcessEnd, ProcessExited, ProcessStarted, RecordingMissed, StartedBy};
use kvro_ledger::{Entry, Event};
use serde::{Deserialize, Serialize};

/// The processes of one run, in the order in which they came to be known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRecord {
    pub processes: Vec<Process>,
    /// What is not on record, and why.
    pub missed: Vec<Missed>,
    #[serde(skip)]
    places: HashMap<u64, usize>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Counts the run's processes from 1.
    pub process: u64,
    /// The number of the parent; `None` for a child of the jail's pid 1.
    pub parent: Option<u64>,
    /// Inside the jail.
    pub pid: u32,
    pub parent_pid: u32,
    /// RFC 3339.
    pub started: String,
    /// RFC 3339; `None` while it lives, as far as the record goes.
    pub ended: Option<String>,
    #[serde(flatten)]
    pub end: Option<ProcessEnd>,
    /// One after the other; none of a fork that went on with its parent's.
    pub programs: Vec<Program>,
}

/// What a process ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub executable: Option<String>,
    pub sha256: Option<String>,
    pub args: Vec<String>,
    /// The bytes of further arguments.
    pub omitted_args_bytes: u64,
    pub cwd: Option<String>,
    pub started: String,
}

/// Events that there would be, had they been seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    pub what: String,
    pub reason: String,
    pub count: u64,
}

impl ProcessRecord {
    /// Folds the entries of one run. They may stop anywhere.
    #[must_use]
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut record = Self::default();
        entries.into_iter().for_each(|entry| record.take(entry));
        record
    }

    /// Takes in the next entry.
    pub fn take(&mut self, entry: &Entry) {
        let Some(event) = entry.known() else { return };
        if let Event::ProcessStarted(started) = event {
            self.start(started);
        } else if let Event::ProcessExited(exited) = event {
            self.end(exited);
        } else if let Event::RecordingMissed(missed) = event {
            add_missed(&mut self.missed, missed);
        }
    }

    fn start(&mut self, started: &ProcessStarted) {
        let place = *self.places.entry(started.process).or_insert_with(|| {
            self.processes.push(Process {
                process: started.process,
                parent: started.parent,
                pid: started.pid,
                parent_pid: started.parent_pid,
                started: started.time.clone(),
                ended: None,
                end: None,
                programs: Vec::new(),
            });
            self.processes.len() - 1
        });
        let Some(process) = self.processes.get_mut(place) else { return };
        match started.by {
            StartedBy::Fork => {}
            StartedBy::Exec => process.programs.push(Program {
                executable: started.executable.clone(),
                sha256: started.sha256.clone(),
                args: started.args.clone(),
                omitted_args_bytes: started.omitted_args_bytes,
                cwd: started.cwd.clone(),
                started: started.time.clone(),
            }),
        }
    }

    fn end(&mut self, exited: &ProcessExited) {
        let place = self.places.get(&exited.process);
        if let Some(process) = place.and_then(|place| self.processes.get_mut(*place)) {
            process.ended = Some(exited.time.clone());
            process.end = Some(exited.end.clone());
        }
    }

    /// The processes as a tree: each with how deep it lies, parents before their children.
    #[must_use]
    pub fn tree(&self) -> Vec<(usize, &Process)> {
        let mut children: HashMap<Option<u64>, Vec<&Process>> = HashMap::new();
        for process in &self.processes {
            // A parent that is not on record has no line.
            let parent = process.parent.filter(|parent| self.places.contains_key(parent));
            // A parent was there first. What is written otherwise must not make a circle.
            let parent = parent.filter(|parent| *parent < process.process);
            children.entry(parent).or_default().push(process);
        }
        let mut unfolded = |depth, parent| {
            let children = children.remove(&parent).unwrap_or_default();
            children.into_iter().rev().map(|child| (depth, child)).collect::<Vec<_>>()
        };
        let mut tree = Vec::new();
        let mut open = unfolded(0, None);
        while let Some((depth, process)) = open.pop() {
            tree.push((depth, process));
            open.append(&mut unfolded(depth + 1, Some(process.process)));
        }
        tree
    }
}

/// Adds what was missed to what was missed before.
pub(crate) fn add_missed(before: &mut Vec<Missed>, more: &RecordingMissed) {
    let RecordingMissed { what, reason, count } = more;
    match before.iter_mut().find(|old| old.what == *what && old.reason == *reason) {
        Some(missed) => missed.count = missed.count.saturating_add(*count),
        None => {
            before.push(Missed { what: what.clone(), reason: reason.clone(), count: *count });
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kvro_ledger::{Actor, LineHash, Recorded};
    use serde_json::json;

    use super::*;

    fn entry(event: Event) -> Entry {
        Entry {
            seq: 1,
            time: Timestamp::UNIX_EPOCH,
            run: "20261130-161200-4f2a9c".parse().unwrap(),
            actor: Actor::Sandbox,
            event: Recorded::Known(event),
            prev: LineHash::NONE,
        }
    }

    fn started(process: u64, parent: Option<u64>, program: Option<&str>) -> Entry {
        entry(Event::ProcessStarted(ProcessStarted {
            process,
            parent,
            pid: 10,
            parent_pid: 9,
            by: if program.is_some() { StartedBy::Exec } else { StartedBy::Fork },
            executable: program.map(|name| format!("/bin/{name}")),
            sha256: None,
            args: program.map(str::to_owned).into_iter().collect(),
            omitted_args_bytes: 0,
            cwd: None,
            time: format!("t{process}"),
        }))
    }

    fn exited(process: u64, end: ProcessEnd) -> Entry {
        let time = "end".to_owned();
        entry(Event::ProcessExited(ProcessExited { process, pid: 10, end, time }))
    }

    fn missed(count: u64) -> Entry {
        let (what, reason) = ("process.started".to_owned(), "too_fast".to_owned());
        entry(Event::RecordingMissed(RecordingMissed { what, reason, count }))
    }

    #[test]
    fn one_process_is_one_whatever_it_runs_and_whatever_its_pid() {
        let record = ProcessRecord::from_entries(&[
            started(1, None, Some("sh")),
            started(2, Some(1), None),
            started(1, None, Some("make")),
            exited(2, ProcessEnd::Unknown),
            missed(2),
            exited(1, ProcessEnd::Exited { code: 3 }),
            missed(3),
        ]);
        let program = |name: &str, started: &str| {
            json!({
                "executable": format!("/bin/{name}"),
                "sha256": null,
                "args": [name],
                "omitted_args_bytes": 0,
                "cwd": null,
                "started": started,
            })
        };
        let expected = json!({
            "processes": [
                {
                    "process": 1,
                    "parent": null,
                    "pid": 10,
                    "parent_pid": 9,
                    "started": "t1",
                    "ended": "end",
                    "status": "exited",
                    "process.exit.code": 3,
                    "programs": [program("sh", "t1"), program("make", "t1")],
                },
                {
                    "process": 2,
                    "parent": 1,
                    "pid": 10,
                    "parent_pid": 9,
                    "started": "t2",
                    "ended": "end",
                    "status": "unknown",
                    "programs": [],
                },
            ],
            "missed": [{"what": "process.started", "reason": "too_fast", "count": 5}],
        });
        assert_eq!(serde_json::to_value(&record).unwrap(), expected);
    }

    #[test]
    fn a_tree_has_every_process_once_even_if_parents_are_missing_or_impossible() {
        let record = ProcessRecord::from_entries(&[
            started(1, None, Some("sh")),
            started(2, Some(1), None),
            started(3, Some(1), None),
            started(4, Some(2), None),
            started(6, Some(5), None),
            started(7, Some(7), None),
            started(8, Some(9), None),
            started(9, Some(8), None),
        ]);
        let tree: Vec<(usize, u64)> =
            record.tree().into_iter().map(|(depth, process)| (depth, process.process)).collect();
        assert_eq!(tree, [(0, 1), (1, 2), (2, 4), (1, 3), (0, 6), (0, 7), (0, 8), (1, 9)]);
    }
}
