//! Counts what a request holds that its bytes do not bound: pictures, files, stored answers.
//!
//! The whole request is walked, so that nothing hides in a place this program does not know. An
//! agent's own JSON that looks like a picture is counted as one; that only reserves more.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::members::{Malformed, Members};
use crate::gate::AskedCache;

/// What an object with a `type` is, for the bound on its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    /// Bounded by its bytes.
    Plain,
    /// Bounded by the provider's largest picture.
    Image,
    /// Bounded by the model's window only.
    Opaque,
    /// Has the provider run something.
    Hosted,
}

/// How a provider marks what is more than its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judge {
    /// By the value of a `type`.
    pub(crate) of_type: fn(&str) -> Block,
    /// By the name of a member.
    pub(crate) of_member: fn(&str) -> Block,
}

/// What was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) images: u64,
    pub(crate) opaque: u64,
    pub(crate) hosted: u64,
    /// Whether a part asks to be written to a cache, and for how long.
    cache: Cache,
    /// Bytes of strings that are text.
    text: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cache {
    #[default]
    Unasked,
    Asked,
    /// With a lifetime of its own.
    AskedFor,
}

/// Members whose strings are not text that a model reads byte by byte.
const NOT_TEXT: [&str; 7] =
    ["data", "url", "image_url", "file_data", "encrypted_content", "signature", "file_url"];

impl Census {
    pub(crate) fn take(members: &Members<'_>, judge: Judge) -> Result<Self, Malformed> {
        let mut census = Self::default();
        let mut json = serde_json::Deserializer::from_slice(members.body());
        Walk { census: &mut census, judge, text: Text::Counted }
            .deserialize(&mut json)
            .map_err(Malformed::Json)?;
        Ok(census)
    }

    const fn count(&mut self, block: Block) {
        match block {
            Block::Plain => {}
            Block::Image => self.images += 1,
            Block::Opaque => self.opaque += 1,
            Block::Hosted => self.hosted += 1,
        }
    }

    /// The dearest that input can be billed at, where the provider caches only what it is asked to.
    pub(crate) const fn cache(&self) -> AskedCache {
        match self.cache {
            Cache::Unasked => AskedCache::Never,
            Cache::Asked => AskedCache::Short,
            Cache::AskedFor => AskedCache::Long,
        }
    }

    /// A low estimate of the request's context: prose and code have fewer than four bytes a token.
    pub(crate) const fn context_at_least(&self) -> u64 {
        self.text / 4
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Counted,
    Skipped,
}

struct Walk<'a> {
    census: &'a mut Census,
    judge: Judge,
    text: Text,
}

impl Walk<'_> {
    fn below(&mut self, text: Text) -> Walk<'_> {
        Walk { census: self.census, judge: self.judge, text }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<Block>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Strings are judged as if they were a `type`; only the caller knows whether they are.
impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<Block>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        if self.text == Text::Counted {
            self.census.text += text.len() as u64;
        }
        Ok(Some((self.judge.of_type)(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let text = self.text;
        while seq.next_element_seed(self.below(text))?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let text =
                if NOT_TEXT.contains(&name.as_ref()) { Text::Skipped } else { Text::Counted };
            match name.as_ref() {
                "cache_control" => self.census.cache = self.census.cache.max(Cache::Asked),
                "ttl" => self.census.cache = Cache::AskedFor,
                _ => {}
            }
            let block = map.next_value_seed(self.below(text))?;
            self.census.count((self.judge.of_member)(&name));
            if name == "type" {
                self.census.count(block.unwrap_or(Block::Plain));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGE: Judge = Judge {
        of_type: |kind| match kind {
            "image" => Block::Image,
            "document" => Block::Opaque,
            "mcp" => Block::Hosted,
            _ => Block::Plain,
        },
        of_member: |name| if name == "film" { Block::Opaque } else { Block::Plain },
    };

    #[test]
    fn a_cache_is_seen_however_deep_it_is_asked_for() {
        let cache = |body: &str| {
            let members = Members::parse(body.as_bytes()).unwrap();
            Census::take(&members, JUDGE).unwrap().cache()
        };
        assert_eq!(cache(r#"{"text":"\"cache_control\""}"#), AskedCache::Never);
        assert_eq!(cache(r#"{"a":[{"c\u0061che_control":{}}]}"#), AskedCache::Short);
        let long = r#"{"a":[{"cache_control":{"ttl":"1h"}},{"cache_control":{}}]}"#;
        assert_eq!(cache(long), AskedCache::Long);
    }

    #[test]
    fn blocks_are_counted_wherever_they_stand_and_pictures_are_no_text() {
        let body = r#"{"a":[{"type":"image","source":{"type":"base64","data":"AAAAAAAAAAAA"}}],
            "b":{"c":{"ty\u0070e":"image","deep":[[{"type":"document"}]]}},
            "tools":[{"type":"mcp"}],"fi\u006cm":{"film":"x"},"type":"x","n":[1,-1,1.5,true,null],"t":"12345678"}"#;
        let members = Members::parse(body.as_bytes()).unwrap();
        let census = Census::take(&members, JUDGE).unwrap();
        assert_eq!((census.images, census.opaque, census.hosted), (2, 3, 1));
        let text = "imagebase64imagedocumentmcpxx12345678".len() as u64;
        assert_eq!(census.context_at_least(), text / 4);
    }
}
