//! Redaction: known secret values never reach the disk, not even as a hash's input.
//!
//! Each secret is looked for as it stands, percent-encoded, escaped as inside JSON, and in base64
//! at all three alignments, so that the value is also found in the middle of what was encoded
//! (`Basic` credentials). What an agent encodes in another way is not found: this keeps our own
//! record clean, it does not guard the secret.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::Value;

/// A derived form shorter than this would match by accident.
const SHORTEST_DERIVED: usize = 8;

/// Secrets that cannot be looked for.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare to redact the secrets of this run")]
pub struct RedactionError(#[source] aho_corasick::BuildError);

/// The secret values that are never written, and what stands for each.
#[derive(Clone, Default)]
pub struct Redactions(Option<Search>);

#[derive(Clone)]
struct Search {
    forms: AhoCorasick,
    /// What each form is replaced by.
    words: Vec<String>,
}

impl fmt::Debug for Redactions {
    /// Never shows a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.0.as_ref().map_or(0, |search| search.words.len());
        f.debug_struct("Redactions").field("forms", &forms).finish_non_exhaustive()
    }
}

impl Redactions {
    /// There is nothing to hide.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Hides each of `secrets`, a name and its value; an empty value hides nothing.
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, RedactionError> {
        let (mut forms, mut words) = (Vec::new(), Vec::new());
        for (name, secret) in secrets {
            for form in self::forms(secret) {
                forms.push(form);
                words.push(format!("[redacted:{name}]"));
            }
        }
        if forms.is_empty() {
            return Ok(Self::none());
        }
        let forms = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(forms)
            .map_err(RedactionError)?;
        Ok(Self(Some(Search { forms, words })))
    }

    /// Replaces the secrets in all strings of `data`. Keys are our own words.
    pub(crate) fn apply(&self, data: &mut Value) {
        if let Some(search) = &self.0 {
            search.apply(data);
        }
    }
}

impl Search {
    fn apply(&self, data: &mut Value) {
        match data {
            Value::String(text) => {
                if self.forms.is_match(text.as_str()) {
                    *text = self.forms.replace_all(text, &self.words);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.apply(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The spellings in which `secret` may show up in a string.
fn forms(secret: &[u8]) -> Vec<String> {
    if secret.is_empty() {
        return Vec::new();
    }
    let plain = String::from_utf8_lossy(secret).into_owned();
    let mut derived = vec![
        percent_encoded(secret, "%20", Digits::Upper),
        percent_encoded(secret, "%20", Digits::Lower),
        percent_encoded(secret, "+", Digits::Upper),
        percent_encoded(secret, "+", Digits::Lower),
        Value::from(plain.as_str()).to_string().trim_matches('"').to_owned(),
    ];
    for engine in [STANDARD, URL_SAFE] {
        let whole = engine.encode(secret);
        derived.push(whole.trim_end_matches('=').to_owned());
        derived.push(whole);
        derived.extend((0..3).map(|offset| base64_within(&engine, secret, offset)));
    }
    derived.retain(|form| form.len() >= SHORTEST_DERIVED);
    derived.push(plain);
    derived.sort_unstable();
    derived.dedup();
    derived
}

/// The digits that `secret` always has in base64 when it begins `offset` bytes into a group of
/// three; those that also depend on its neighbours are left out.
fn base64_within(engine: &impl Engine, secret: &[u8], offset: usize) -> String {
    let padded = [&[0; 3][..offset], secret].concat();
    let encoded = engine.encode(&padded);
    let shared_at_start = [0, 2, 3][offset];
    let whole_digits = padded.len() * 8 / 6;
    encoded.get(shared_at_start..whole_digits).unwrap_or_default().to_owned()
}

#[derive(Clone, Copy)]
enum Digits {
    Upper,
    Lower,
}

fn percent_encoded(secret: &[u8], space: &str, digits: Digits) -> String {
    secret.iter().fold(String::new(), |mut text, &byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            b' ' => text.push_str(space),
            _ => text.push_str(&match digits {
                Digits::Upper => format!("%{byte:02X}"),
                Digits::Lower => format!("%{byte:02x}"),
            }),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECRET: &str = "sk-ant-\"Z/8+ü?.0123456789";

    fn redacted(text: &str) -> String {
        let redactions = Redactions::new([("KEY", SECRET.as_bytes())]).unwrap();
        let mut data = json!({"a": [{"b": text}]});
        redactions.apply(&mut data);
        data["a"][0]["b"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_secret_is_replaced_by_its_name() {
        assert_eq!(redacted(&format!("x={SECRET};{SECRET}")), "x=[redacted:KEY];[redacted:KEY]");
        assert_eq!(redacted("nothing to see"), "nothing to see");
    }

    #[test]
    fn an_encoded_secret_is_found_too() {
        let url = "https://x.example/?k=sk-ant-%22Z%2F8%2B%C3%BC%3F.0123456789&y";
        assert_eq!(redacted(url), "https://x.example/?k=[redacted:KEY]&y");
        assert_eq!(redacted(&format!("k={}", STANDARD.encode(SECRET))), "k=[redacted:KEY]");
        assert_eq!(redacted(&format!("k={}", URL_SAFE.encode(SECRET))), "k=[redacted:KEY]");
        assert_eq!(redacted(&json!(SECRET).to_string()), "\"[redacted:KEY]\"");
    }

    #[test]
    fn a_secret_inside_of_what_was_encoded_is_found_at_every_alignment() {
        for user in ["", "u", "us", "use", "user"] {
            for tail in ["", "t", "ta", "tai"] {
                let inner = format!("{user}{SECRET}{tail}");
                let text = redacted(&STANDARD.encode(&inner));
                assert!(text.contains("[redacted:KEY]"), "{inner}: {text}");
                // What is left is at most the digits shared with the neighbours.
                let rest = text.replace("[redacted:KEY]", "");
                let bound = (user.len() + tail.len()) * 4 / 3 + 6;
                assert!(rest.len() <= bound, "{inner}: {rest}");
            }
        }
    }

    #[test]
    fn of_two_secrets_the_longer_one_wins_where_both_match() {
        let redactions = Redactions::new([("A", &b"token"[..]), ("B", b"token-long")]).unwrap();
        let mut data = json!(["token-long", "token", ""]);
        redactions.apply(&mut data);
        assert_eq!(data, json!(["[redacted:B]", "[redacted:A]", ""]));
    }

    #[test]
    fn nothing_to_hide_changes_nothing() {
        for none in [Redactions::none(), Redactions::new([("EMPTY", &b""[..])]).unwrap()] {
            let mut data = json!({"a": "b", "c": 1});
            none.apply(&mut data);
            assert_eq!(data, json!({"a": "b", "c": 1}));
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let redactions = Redactions::new([("KEY", SECRET.as_bytes())]).unwrap();
        assert!(!format!("{redactions:?}").contains("0123456789"));
    }
}
