//! One entry as a line for a person.

use std::borrow::Cow;

use kvro_ledger::Entry;
use serde_json::Value;

use crate::report::{harmless, harmless_json};

/// `    7  16:12:00.123  proxy       egress.denied  server.address=x.example server.port=443 …`
///
/// A line that is no entry is shown as it stands: a broken ledger can be looked at, too.
pub(super) fn line(bytes: &[u8]) -> String {
    let Ok(entry) = Entry::parse(bytes) else {
        return format!("    ?  {}", harmless(&String::from_utf8_lossy(bytes)));
    };
    let (event, data) = entry.name_and_data().unwrap_or_default();
    let actor = serde_json::to_value(entry.actor).unwrap_or_default();
    let actor = actor.as_str().unwrap_or_default();
    let time = entry.time.strftime("%H:%M:%S.%3f");
    let fields: Vec<String> = match data.as_object() {
        Some(fields) => fields.iter().map(|(name, value)| field(name, value)).collect(),
        None => vec![harmless_json(&data.to_string()).into_owned()],
    };
    let event = harmless(&event);
    let line = format!("{:>5}  {time}  {actor:<10}  {event:<20}  {}", entry.seq, fields.join(" "));
    line.trim_end().to_owned()
}

fn field(name: &str, value: &Value) -> String {
    let is_plain = |text: &str| {
        !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "\"=".contains(c))
    };
    let value = match value.as_str() {
        Some(text) if is_plain(text) => harmless(text),
        _ => Cow::Owned(harmless_json(&value.to_string()).into_owned()),
    };
    format!("{}={value}", harmless(name))
}
