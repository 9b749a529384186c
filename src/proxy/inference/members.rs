//! A JSON object's top-level members, to be read and edited with all else left as it was written.
//!
//! A name that stands twice is refused: a provider that takes the other one would be asked for
//! another model, or another limit, than the one that was paid for.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What a provider may put around the text of a request: the hidden instructions that come with
/// tools, and the marks between messages beyond what the JSON itself spends on them.
const OVERHEAD_TOKENS: u64 = 2_048;

/// The members of one object, in order.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    body: &'a [u8],
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// A request that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the request is not the JSON that this operation takes")]
    Json(#[source] serde_json::Error),
    #[error("a member of the request stands twice")]
    Twice,
    #[error("the request limits its answer in two ways, and which one counts is not known")]
    TwoLimits,
    #[error("the request asks for an answer that is fetched later, which cannot be metered")]
    Background,
    #[error("the request's content encoding is not known here")]
    Encoding,
    #[error("the request's content encoding is broken")]
    Compression(#[source] std::io::Error),
}

impl<'a> Members<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let Ordered(members) = serde_json::from_slice(body).map_err(Malformed::Json)?;
        let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_ref()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Malformed::Twice);
        }
        Ok(Self { body, members })
    }

    /// The object as `T`.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Malformed> {
        serde_json::from_slice(self.body).map_err(Malformed::Json)
    }

    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The text of a member's value.
    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value.get())
    }

    /// The most tokens that the request's text can be.
    pub(crate) fn text_bound(&self) -> u64 {
        (self.body.len() as u64).saturating_add(OVERHEAD_TOKENS)
    }

    /// The edit that sets the member at the end of `way` to `value`, and leaves what stands beside
    /// it.
    pub(crate) fn edit<'w>(&self, way: &[&'w str], value: String) -> Option<(&'w str, String)> {
        let (name, below) = way.split_first()?;
        if below.is_empty() {
            return Some((name, value));
        }
        let inner = self.value(name).map(|inner| Members::parse(inner.as_bytes()));
        let inner = match inner {
            Some(Ok(inner)) => inner,
            // What is no object cannot hold it.
            Some(Err(_)) | None => Members { body: b"{}", members: Vec::new() },
        };
        Some((name, inner.with(&[inner.edit(below, value)?])))
    }

    /// The object with `edits` in place of, or behind, the members of the same name.
    pub(crate) fn with(&self, edits: &[(&str, String)]) -> String {
        let kept = self.members.iter().map(|(name, value)| {
            let edit = edits.iter().find(|(edited, _)| edited == name);
            (name.as_ref(), edit.map_or(value.get(), |(_, value)| value))
        });
        let added = edits
            .iter()
            .filter(|(name, _)| self.value(name).is_none())
            .map(|(name, value)| (*name, value.as_str()));
        let members: Vec<String> = kept
            .chain(added)
            .map(|(name, value)| format!("{}:{value}", serde_json::Value::from(name)))
            .collect();
        format!("{{{}}}", members.join(","))
    }
}

struct Ordered<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Ordered<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Ordered<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Ordered(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(body: &str, edits: &[(&str, &str)]) -> String {
        let edits: Vec<(&str, String)> =
            edits.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Members::parse(body.as_bytes()).unwrap().with(&edits)
    }

    #[test]
    fn an_edit_leaves_every_other_member_as_it_was_written() {
        let body = "{ \"b\" : 1.0e2, \"max_tokens\":128000,\n\"\\u0061\":{\"z\": [ 1,2 ], \"y\":\"\\u00e9\"}}";
        assert_eq!(
            edited(body, &[("max_tokens", "7")]),
            "{\"b\":1.0e2,\"max_tokens\":7,\"a\":{\"z\": [ 1,2 ], \"y\":\"\\u00e9\"}}"
        );
        assert_eq!(edited("{}", &[("max_tokens", "7")]), "{\"max_tokens\":7}");
        assert_eq!(edited("{\"a\":1}", &[("b", "2"), ("c", "{}")]), "{\"a\":1,\"b\":2,\"c\":{}}");
    }

    #[test]
    fn a_member_that_stands_twice_is_refused_however_it_is_spelled() {
        for body in ["{\"model\":\"a\",\"model\":\"b\"}", "{\"model\":\"a\",\"mod\\u0065l\":\"b\"}"]
        {
            assert!(matches!(Members::parse(body.as_bytes()), Err(Malformed::Twice)), "{body}");
        }
    }

    #[test]
    fn an_edit_further_down_leaves_what_stands_beside_it() {
        let edited = |body: &str| {
            let members = Members::parse(body.as_bytes()).unwrap();
            members.with(&[members.edit(&["a", "b"], "7".to_owned()).unwrap()])
        };
        assert_eq!(
            edited("{\"a\":{ \"c\": 1.0,\"b\":2},\"d\":3}"),
            "{\"a\":{\"c\":1.0,\"b\":7},\"d\":3}"
        );
        assert_eq!(edited("{\"a\":null}"), "{\"a\":{\"b\":7}}");
        assert_eq!(edited("{}"), "{\"a\":{\"b\":7}}");
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        for body in ["", "[]", "null", "{", "{}x", "\"a\"", "\u{feff}{}"] {
            assert!(matches!(Members::parse(body.as_bytes()), Err(Malformed::Json(_))), "{body}");
        }
    }
}
