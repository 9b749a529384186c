//! Names of environment variables, and patterns over them.

use std::fmt;
use std::str::FromStr;

use globset::{Glob, GlobMatcher};

use super::entry::Entry;

/// A variable name, `*` standing for any letters: `LC_*`; `!` in front takes back.
#[derive(Debug, Clone)]
pub struct NamePattern {
    typed: String,
    matcher: GlobMatcher,
}

/// A text that names no variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a variable's name has letters, digits and `_` and does not begin with a digit")]
pub struct NameError;

/// A variable to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// One variable's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(pub(super) String);

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = text
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit());
        if begins && text.bytes().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError)
        }
    }
}

impl NamePattern {
    #[must_use]
    pub fn takes_back(&self) -> bool {
        self.typed.starts_with('!')
    }

    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.matcher.is_match(name)
    }

    /// The pattern without its mark.
    pub(super) fn body(&self) -> &str {
        self.typed.strip_prefix('!').unwrap_or(&self.typed)
    }
}

impl FromStr for NamePattern {
    type Err = NameError;

    fn from_str(typed: &str) -> Result<Self, NameError> {
        let body = typed.strip_prefix('!').unwrap_or(typed);
        // A star may stand anywhere, also in front.
        Name::from_str(&body.replace('*', "_"))?;
        let glob = Glob::new(body).map_err(|_cause| NameError)?;
        Ok(Self {
            typed: typed.to_owned(),
            matcher: glob.compile_matcher(),
        })
    }
}

/// Two patterns are the same when they were typed the same.
impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.typed == other.typed
    }
}

impl Eq for NamePattern {}

/// As it was typed.
impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

/// The patterns of one authority, in order; the last match wins.
pub type NameList = Vec<Entry<NamePattern>>;

/// The pattern of `list` that lets `name` pass.
pub(super) fn passes<'l>(list: &'l NameList, name: &str) -> Option<&'l Entry<NamePattern>> {
    let last = list.iter().rev().find(|entry| entry.value.matches(name))?;
    (!last.value.takes_back()).then_some(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_wins() {
        let list: NameList = ["LC_*", "ANTHROPIC_*", "!ANTHROPIC_API_KEY"]
            .into_iter()
            .map(|word| Entry::typed(word.parse().unwrap()))
            .collect();
        let shown = |name| passes(&list, name).map(|entry| entry.value.to_string());
        assert_eq!(shown("LC_ALL"), Some("LC_*".to_owned()));
        assert_eq!(shown("ANTHROPIC_MODEL"), Some("ANTHROPIC_*".to_owned()));
        assert_eq!(shown("ANTHROPIC_API_KEY"), None);
        assert_eq!(shown("LD_PRELOAD"), None);
    }

    #[test]
    fn what_names_no_variable_is_refused() {
        for text in ["", "!", "A=B", "A B", "1A", "[A]", "Ä", "A?"] {
            assert_eq!(text.parse::<NamePattern>(), Err(NameError), "{text:?}");
        }
    }
}
