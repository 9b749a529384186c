//! Our own words while a run starts: on stderr, since the streams are the command's.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::policy::Warning;
use crate::report::harmless;

/// Whether anything is said. Errors always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Say {
    Everything,
    Nothing,
}

impl Say {
    /// One line with our prefix. A stderr that is gone is no reason to stop.
    pub fn line(self, notes: &mut dyn Write, line: &str) {
        if self == Self::Everything {
            drop(writeln!(notes, "kvro-jail: {}", sentence(line)));
        }
    }

    /// One line in the middle of a run, when the terminal may be in raw mode.
    pub fn during_run(self, line: &str) {
        if self == Self::Everything {
            let mut notes = io::stderr();
            let (before, after) = if notes.is_terminal() { ("\r", "\r\n") } else { ("", "\n") };
            drop(write!(notes, "{before}kvro-jail: {}{after}", sentence(line)));
        }
    }

    /// A warning and what to do about it.
    pub fn warning(self, notes: &mut dyn Write, warning: &dyn Display, hint: &str) {
        self.line(notes, &format!("warning: {warning}"));
        self.line(notes, &format!("hint: {hint}"));
    }

    /// What the policy's lookup found worth saying.
    pub fn policy(self, notes: &mut dyn Write, warnings: &[Warning]) {
        for warning in warnings {
            self.warning(notes, warning, &warning.hint());
        }
    }
}

/// Our own sentence may be long, what it names may not.
fn sentence(line: &str) -> String {
    let words: Vec<_> = line.split(' ').map(harmless).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_is_whole_and_a_long_word_is_cut() {
        let line = "a path and ".repeat(100);
        assert_eq!(sentence(&line), line);
        assert_eq!(
            sentence(&format!("\x1b[2J {}", "x".repeat(900))).len(),
            "\\u{1b}[2J ".len() + 203
        );
    }
}
