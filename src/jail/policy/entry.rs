//! A value together with who said it and why.

use std::fmt;
use std::sync::Arc;

/// The layer of what was said on the command line.
pub const COMMAND_LINE: &str = "command line";

/// Where a rule stands, so that every decision can name the line behind it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// A path, `builtin:NAME`, `profile:NAME` or [`COMMAND_LINE`].
    pub layer: Arc<str>,
    /// From 1; 0 where the layer has no lines.
    pub line: usize,
}

impl Origin {
    #[must_use]
    pub fn command_line() -> Self {
        Self { layer: COMMAND_LINE.into(), line: 0 }
    }

    /// Whether the program itself brought it along.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.layer.starts_with("builtin:") || self.layer.starts_with("profile:")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.layer),
            line => write!(f, "{}:{line}", self.layer),
        }
    }
}

/// One thing that a layer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<T> {
    pub value: T,
    /// Every built-in entry gives one; a person's own file need not.
    pub why: Option<Arc<str>>,
    pub origin: Origin,
}

impl<T> Entry<T> {
    /// What a flag says.
    pub fn typed(value: T) -> Self {
        Self { value, why: None, origin: Origin::command_line() }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Entry<U> {
        Entry { value: change(self.value), why: self.why, origin: self.origin }
    }
}
