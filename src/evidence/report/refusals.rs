//! What was refused, grouped: each thing once, with how often.
//!
//! The ledger writes a repeated refusal once and counts the rest in entries of their own, which
//! say what they repeat by its sequence number; here the two come together again.

use std::collections::HashMap;

use kvro_ledger::Event;
use kvro_ledger::event::{EgressAttempted, HiddenOpened};
use serde::{Deserialize, Serialize};

/// One thing that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The event: `dns.refused`, `egress.denied`, `egress.attempted`, …
    pub kind: String,
    /// The name, the server and port, or the model.
    pub what: String,
    /// The stable code of why; empty for an attempt where nothing listens.
    pub reason: String,
    pub count: u64,
}

/// One hidden file that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) path: String,
    pub(crate) count: u64,
}

/// The refusals of a run, in the order in which each first happened.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) refused: Vec<Refused>,
    pub(crate) hidden: Vec<Opened>,
    places: HashMap<Key, Place>,
    by_seq: HashMap<u64, Place>,
}

type Key = (&'static str, String, String);

#[derive(Debug, Clone, Copy)]
enum Place {
    Refused(usize),
    Hidden(usize),
}

impl Refusals {
    /// Takes in `event` if it is a refusal.
    pub(crate) fn take(&mut self, seq: u64, event: &Event) {
        if let Event::Repeated(repeated) = event {
            if let Some(place) = self.by_seq.get(&repeated.of_seq) {
                self.add(*place, repeated.count);
            }
            return;
        }
        let Some(key) = key(event) else { return };
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => self.make_place(key),
        };
        self.by_seq.insert(seq, place);
        self.add(place, 1);
    }

    fn make_place(&mut self, key: Key) -> Place {
        let (kind, what, reason) = key.clone();
        let place = if kind == HIDDEN {
            self.hidden.push(Opened { path: what, count: 0 });
            Place::Hidden(self.hidden.len() - 1)
        } else {
            self.refused.push(Refused { kind: kind.to_owned(), what, reason, count: 0 });
            Place::Refused(self.refused.len() - 1)
        };
        self.places.insert(key, place);
        place
    }

    fn add(&mut self, place: Place, times: u64) {
        let count = match place {
            Place::Refused(at) => self.refused.get_mut(at).map(|refused| &mut refused.count),
            Place::Hidden(at) => self.hidden.get_mut(at).map(|opened| &mut opened.count),
        };
        if let Some(count) = count {
            *count = count.saturating_add(times);
        }
    }
}

const HIDDEN: &str = "fs.hidden_opened";

/// What makes two refusals one line of a report.
fn key(event: &Event) -> Option<Key> {
    if let Event::HiddenOpened(HiddenOpened { path }) = event {
        return Some((HIDDEN, path.clone(), String::new()));
    }
    if let Event::NameRefused(refused) = event {
        return Some(("fs.refused", refused.path.clone(), refused.verb.clone()));
    }
    if let Event::DnsRefused(refused) = event {
        return Some(("dns.refused", refused.name.clone(), refused.reason.clone()));
    }
    if let Event::EgressDenied(denied) = event {
        let what = server(&denied.server, denied.port);
        return Some(("egress.denied", what, denied.reason.clone()));
    }
    if let Event::EgressAttempted(attempted) = event {
        return Some(("egress.attempted", attempted_server(attempted), String::new()));
    }
    if let Event::InferenceRefused(refused) = event {
        return Some(("inference.refused", refused.model.clone(), refused.reason.clone()));
    }
    if let Event::UpstreamFailed(failed) = event
        // The address behind an allowed name is refused; other failures are the network's.
        && failed.reason.starts_with("address_")
    {
        let what = server(&failed.server, failed.port);
        return Some(("upstream.failed", what, failed.reason.clone()));
    }
    None
}

fn attempted_server(attempted: &EgressAttempted) -> String {
    let server = server(&attempted.server, attempted.port);
    match attempted.transport.as_str() {
        "tcp" => server,
        other => format!("{server}/{other}"),
    }
}

fn server(server: &str, port: u16) -> String {
    if server.contains(':') { format!("[{server}]:{port}") } else { format!("{server}:{port}") }
}
