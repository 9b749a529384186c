//! The chain: the one form of a line, and how each line names the one before it.
//!
//! `prev` is the SHA-256 of the previous line's exact bytes without its LF, so that `sha256sum`
//! alone can check a ledger. The bytes are hashed as they lie on disk and never re-serialized:
//! a verifier that re-serializes agrees with its writer only until a float, a time or a key order
//! is printed differently. This module does no I/O and does not know what events mean.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{Actor, RunId};

/// The SHA-256 of a line's bytes without its LF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineHash([u8; 32]);

impl LineHash {
    /// What the first line calls its predecessor.
    pub const NONE: Self = Self([0; 32]);

    #[must_use]
    pub fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not a line's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 lowercase hexadecimal digits")]
pub struct NotAHash;

impl FromStr for LineHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(NotAHash),
        };
        if text.len() != 64 {
            return Err(NotAHash);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(hash))
    }
}

impl Serialize for LineHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LineHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// How far a chain reaches: its last line, and how many lines and bytes lie up to its end.
///
/// Lines are numbered from 1, so that `seq` is their count as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub seq: u64,
    pub hash: LineHash,
    pub bytes: u64,
}

impl Head {
    /// The head of a chain without lines.
    pub const EMPTY: Self = Self { seq: 0, hash: LineHash::NONE, bytes: 0 };

    /// The head once `line`, given without its LF, is appended.
    pub(crate) fn after(self, line: &[u8]) -> Self {
        Self {
            seq: self.seq + 1,
            hash: LineHash::of(line),
            bytes: self.bytes + line.len() as u64 + 1,
        }
    }
}

/// One line, as written and as read. The fields stand in their public order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) seq: u64,
    #[serde(with = "nanoseconds")]
    pub(crate) time: Timestamp,
    pub(crate) run: RunId,
    pub(crate) actor: Actor,
    pub(crate) event: String,
    pub(crate) prev: LineHash,
    pub(crate) data: Value,
}

/// What a new line says, before the chain gives it its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Words {
    pub(crate) time: Timestamp,
    pub(crate) run: RunId,
    pub(crate) actor: Actor,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// Appends `words` to `out` as the line behind `head`, LF included, and moves `head` onto it.
pub(crate) fn append(head: &mut Head, words: Words, out: &mut Vec<u8>) -> serde_json::Result<u64> {
    let Words { time, run, actor, event, data } = words;
    let line = Line { seq: head.seq + 1, time, run, actor, event, prev: head.hash, data };
    let line = serde_json::to_vec(&line)?;
    *head = head.after(&line);
    out.extend_from_slice(&line);
    out.push(b'\n');
    Ok(head.seq)
}

/// RFC 3339 in UTC with exactly nine digits behind the point, and no other spelling.
mod nanoseconds {
    use super::{Deserialize, Deserializer, Serializer, Timestamp, de};

    pub(super) fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{time:.9}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(from)?;
        let time: Timestamp = text.parse().map_err(de::Error::custom)?;
        if format!("{time:.9}") == text {
            Ok(time)
        } else {
            Err(de::Error::custom("a time has nine digits behind the point and ends in Z"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn words(event: &str) -> Words {
        Words {
            time: "2026-11-30T16:12:00.123456789Z".parse().unwrap(),
            run: "20261130-161200-4f2a9c".parse().unwrap(),
            actor: Actor::Proxy,
            event: event.to_owned(),
            data: json!({"server.address": "x.example", "server.port": 443}),
        }
    }

    #[test]
    fn a_line_has_the_public_form() {
        let (mut head, mut out) = (Head::EMPTY, Vec::new());
        append(&mut head, words("egress.denied"), &mut out).unwrap();
        let expected = concat!(
            r#"{"seq":1,"time":"2026-11-30T16:12:00.123456789Z","run":"20261130-161200-4f2a9c","#,
            r#""actor":"proxy","event":"egress.denied","#,
            r#""prev":"0000000000000000000000000000000000000000000000000000000000000000","#,
            r#""data":{"server.address":"x.example","server.port":443}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        let line = &out[..out.len() - 1];
        assert_eq!(head, Head { seq: 1, hash: LineHash::of(line), bytes: out.len() as u64 });
    }

    #[test]
    fn each_line_names_the_hash_of_the_one_before() {
        let (mut head, mut first, mut second) = (Head::EMPTY, Vec::new(), Vec::new());
        append(&mut head, words("egress.denied"), &mut first).unwrap();
        append(&mut head, words("egress.closed"), &mut second).unwrap();
        let second: Line = serde_json::from_slice(&second).unwrap();
        assert_eq!((second.seq, second.prev), (2, LineHash::of(&first[..first.len() - 1])));
    }

    #[test]
    fn a_hash_reads_back_and_only_in_its_one_spelling() {
        let hash = LineHash::of(b"");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        for wrong in [text.to_uppercase(), text[1..].to_owned(), format!("{}g", &text[1..])] {
            assert_eq!(wrong.parse::<LineHash>(), Err(NotAHash), "{wrong}");
        }
    }

    #[test]
    fn a_time_in_another_spelling_is_refused() {
        let mut out = Vec::new();
        append(&mut Head::EMPTY.clone(), words("door.opened"), &mut out).unwrap();
        let good = String::from_utf8(out).unwrap();
        serde_json::from_str::<Line>(&good).unwrap();
        for other in [
            "2026-11-30T16:12:00.123456789+00:00",
            "2026-11-30T16:12:00.12345678Z",
            "2026-11-30t16:12:00.123456789Z",
            "2026-11-30 16:12:00.123456789Z",
        ] {
            let bad = good.replace("2026-11-30T16:12:00.123456789Z", other);
            assert!(serde_json::from_str::<Line>(&bad).is_err(), "{other}");
        }
    }
}
