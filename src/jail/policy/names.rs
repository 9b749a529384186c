//! Names of environment variables, and patterns over them.

use std::fmt;
use std::str::FromStr;

use super::entry::Entry;

/// A variable name, `*` standing for any letters: `LC_*`; `!` in front takes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    typed: String,
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
        let begins = text.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if begins && text.bytes().all(fits) { Ok(Self(text.to_owned())) } else { Err(NameError) }
    }
}

impl NamePattern {
    #[must_use]
    pub fn takes_back(&self) -> bool {
        self.typed.starts_with('!')
    }

    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.body().split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            // The leftmost place leaves the most room for the parts behind it.
            let Some(at) = rest.find(part) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        true
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
        Ok(Self { typed: typed.to_owned() })
    }
}

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
    fn a_star_stands_for_any_letters() {
        let matches = |pattern: &str, name| pattern.parse::<NamePattern>().unwrap().matches(name);
        for name in ["A__B", "AxB", "AxByB", "AB"] {
            assert!(matches("A*B", name), "{name}");
        }
        for name in ["A", "B", "ABx", "xAB"] {
            assert!(!matches("A*B", name), "{name}");
        }
        assert!(matches("*", "ANY"));
        assert!(matches("A*B*C", "A1B2BC"));
        assert!(!matches("A*BC*C", "ABC"));
        assert!(!matches("A", "AB"));
    }

    #[test]
    fn what_names_no_variable_is_refused() {
        for text in ["", "!", "A=B", "A B", "1A", "[A]", "Ä", "A?"] {
            assert_eq!(text.parse::<NamePattern>(), Err(NameError), "{text:?}");
        }
    }
}
