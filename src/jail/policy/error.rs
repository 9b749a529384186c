//! What is wrong with a policy, worded for the person who wrote it.
//!
//! Every problem in a text names its file, line and column and shows the line with a caret;
//! `Display` is the finished text of several lines, without the program's name in front.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A policy that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("{0}")]
    Invalid(Box<Problem>),
    #[error("cannot read the policy {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the policy {} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("the policy {} is longer than 1 MiB", .0.display())]
    TooLong(PathBuf),
    #[error("{0} builds on more files than 8 deep, or on itself")]
    TooDeep(String),
    #[error("there is no built-in policy `{name}`\n\nhint: {hint}")]
    UnknownBuiltin { name: String, hint: String },
    #[error("there is no profile `{name}`\n\nhint: {hint}")]
    UnknownProfile { name: String, hint: String },
    #[error("cannot {step} the trust store {}", path.display())]
    TrustStore {
        step: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(
        "the trust store {} is damaged\n\nhint: remove it and trust the directories again",
        .0.display()
    )]
    TrustStoreDamaged(PathBuf),
}

impl PolicyError {
    /// What sort of mistake it is, when it is one in a text.
    #[must_use]
    pub fn mistake(&self) -> Option<Mistake> {
        match self {
            Self::Invalid(problem) => Some(problem.mistake),
            Self::Unreadable { .. }
            | Self::NotAFile(_)
            | Self::TooLong(_)
            | Self::TooDeep(_)
            | Self::UnknownBuiltin { .. }
            | Self::UnknownProfile { .. }
            | Self::TrustStore { .. }
            | Self::TrustStoreDamaged(_) => None,
        }
    }
}

/// The sorts of mistakes in a policy's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    Syntax,
    UnknownKey,
    /// A key whose enforcement this version does not have. Taken silently, it would look enforced.
    NotSupported,
    MissingKey,
    WrongType,
    Glob,
    /// A rule that can never hold, or says the opposite of another.
    Rule,
    Server,
    Amount,
    Duration,
    Size,
    Path,
    /// A word or number outside what the key takes.
    Value,
    Extends,
}

/// One mistake and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub mistake: Mistake,
    pub what: String,
    pub source: Arc<str>,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The line as it stands in the file.
    pub text: String,
    /// How many characters the caret underlines.
    pub width: usize,
    pub hint: Option<String>,
}

impl Problem {
    /// The mistake at `span` of `body`, a text that came from `source`.
    pub(super) fn at(
        mistake: Mistake,
        what: impl Into<String>,
        source: &Arc<str>,
        body: &str,
        span: &Range<usize>,
    ) -> Self {
        let start = floor(body, span.start);
        let end = floor(body, span.end).max(start);
        let line_start = body[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let text = body[line_start..].lines().next().unwrap_or_default();
        let line_end = line_start + text.len();
        let width = body[start.min(line_end)..end.min(line_end)].chars().count();
        Self {
            mistake,
            what: harmless(&what.into()),
            source: Arc::clone(source),
            line: body[..start].matches('\n').count() + 1,
            column: body[line_start..start].chars().count() + 1,
            text: text
                .chars()
                .map(|c| if c != '\t' && is_harmful(c) { '\u{fffd}' } else { c })
                .collect(),
            width: width.max(1),
            hint: None,
        }
    }

    /// Says what to do about it.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Problem> for PolicyError {
    fn from(problem: Problem) -> Self {
        Self::Invalid(Box::new(problem))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        // A tab keeps its width in front of the caret, whatever the terminal makes of it.
        let before: String = (self.text.chars().take(self.column - 1))
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        writeln!(f, "{}", self.what)?;
        writeln!(f, "{margin}--> {}:{}:{}", self.source, self.line, self.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {}", self.text)?;
        write!(f, "{margin} | {before}{}", "^".repeat(self.width))?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// `text` without what a terminal obeys instead of showing: a cloned repository's policy must not
/// move the cursor or turn the direction of what a person reads.
pub(super) fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The nearest character boundary at or before `offset`.
fn floor(body: &str, offset: usize) -> usize {
    (0..=offset.min(body.len())).rev().find(|&at| body.is_char_boundary(at)).unwrap_or(0)
}

/// The known word that a person most likely meant.
pub(super) fn nearest<'w>(
    typed: &str,
    known: impl IntoIterator<Item = &'w str>,
) -> Option<&'w str> {
    known
        .into_iter()
        .map(|word| (distance(typed, word), word))
        .filter(|&(steps, word)| steps <= (word.len() / 3).max(1))
        .min()
        .map(|(_, word)| word)
}

/// Levenshtein's distance, one row at a time; a swap of neighbours counts as two.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
