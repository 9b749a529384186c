//! Entries: events with their place in a run's chain, as a reader sees them.
//!
//! A ledger may come from a newer version. An event this version does not know is kept as it
//! stands, so that such a ledger can still be verified, listed and shown.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::chain::{Line, LineHash};
use crate::{Actor, Event, RunId};

/// One line of a run's ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub seq: u64,
    pub time: Timestamp,
    pub run: RunId,
    pub actor: Actor,
    pub event: Recorded,
    pub prev: LineHash,
}

/// An event as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    Known(Event),
    /// From another version of the vocabulary.
    Opaque {
        event: String,
        data: Value,
    },
}

impl Entry {
    /// Reads one line, given without its LF.
    pub fn parse(line: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice::<Line>(line).map(Self::from)
    }

    /// The event, if this version knows it.
    #[must_use]
    pub const fn known(&self) -> Option<&Event> {
        match &self.event {
            Recorded::Known(event) => Some(event),
            Recorded::Opaque { .. } => None,
        }
    }

    /// The event's public name and its data.
    pub fn name_and_data(&self) -> serde_json::Result<(String, Value)> {
        match &self.event {
            Recorded::Known(event) => name_and_data(event),
            Recorded::Opaque { event, data } => Ok((event.clone(), data.clone())),
        }
    }
}

impl From<Line> for Entry {
    fn from(line: Line) -> Self {
        let Line { seq, time, run, actor, event, prev, data } = line;
        let tagged = json!({"event": event, "data": data});
        let event = match serde_json::from_value(tagged) {
            Ok(known) => Recorded::Known(known),
            Err(_) => Recorded::Opaque { event, data },
        };
        Self { seq, time, run, actor, event, prev }
    }
}

/// Splits an event into its public name and its data.
pub(crate) fn name_and_data(event: &impl Serialize) -> serde_json::Result<(String, Value)> {
    let mut tagged = serde_json::to_value(event)?;
    let mut take = |field| tagged.get_mut(field).map(Value::take);
    match (take("event"), take("data")) {
        (Some(Value::String(event)), Some(data)) => Ok((event, data)),
        _ => Err(serde::ser::Error::custom("an event has a name and data")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::HiddenOpened;

    fn line(event: &str, data: &str) -> String {
        let hash = LineHash::NONE;
        format!(
            r#"{{"seq":1,"time":"2026-11-30T16:12:00.000000000Z","run":"20261130-161200-4f2a9c","actor":"guard","event":"{event}","prev":"{hash}","data":{data}}}"#
        )
    }

    #[test]
    fn a_known_event_is_read_as_itself() {
        let entry = Entry::parse(line("fs.hidden_opened", r#"{"path":".env"}"#).as_bytes());
        let event = Event::HiddenOpened(HiddenOpened { path: ".env".to_owned() });
        assert_eq!(entry.unwrap().event, Recorded::Known(event));
    }

    #[test]
    fn an_event_of_a_newer_version_is_kept_as_it_stands() {
        for (event, data) in [("fs.dreamt", json!({"of": [1]})), ("dns.refused", json!({}))] {
            let entry = Entry::parse(line(event, &data.to_string()).as_bytes()).unwrap();
            assert_eq!(entry.name_and_data().unwrap(), (event.to_owned(), data.clone()));
            assert_eq!(entry.event, Recorded::Opaque { event: event.to_owned(), data });
        }
    }

    #[test]
    fn an_unknown_field_beside_the_data_is_no_entry() {
        let good = line("fs.hidden_opened", "{}");
        Entry::parse(good.replacen('{', r#"{"note":1,"#, 1).as_bytes()).unwrap_err();
    }
}
