//! The walk along a chain, which names the entry where it first breaks.
//!
//! When line k does not name line k - 1, one of the two was changed. The line behind tells which:
//! if it still names k, then k is as it was written, and k - 1 is not.

use crate::chain::{Head, Line, LineHash};
use crate::verify::{Break, Reason};

/// Follows one chain, line by line.
#[derive(Debug)]
pub(super) struct Walk {
    head: Head,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Sound,
    /// This line, as it stands, does not name the one before it.
    Torn {
        seq: u64,
        hash: LineHash,
    },
    /// This entry is not where it should be; it may still come.
    Skipped {
        seq: u64,
    },
    Broken(Break),
}

impl Walk {
    pub(super) const fn new() -> Self {
        Self { head: Head::EMPTY, state: State::Sound }
    }

    /// The head of the sound part.
    pub(super) const fn head(&self) -> Head {
        self.head
    }

    /// Takes the next line, given without its LF; gives it back read while the chain is sound.
    pub(super) fn step(&mut self, line: &[u8]) -> Option<Line> {
        let read: Option<Line> = serde_json::from_slice(line).ok();
        match self.state {
            State::Broken(_) => None,
            State::Torn { seq, hash } => {
                let kept = read.is_some_and(|next| next.prev == hash);
                self.break_at(if kept { seq - 1 } else { seq }, Reason::Changed);
                None
            }
            State::Skipped { seq } => {
                if read.is_some_and(|later| later.seq == seq) {
                    self.break_at(seq, Reason::OutOfOrder);
                }
                None
            }
            State::Sound => self.extend(line, read),
        }
    }

    fn extend(&mut self, line: &[u8], read: Option<Line>) -> Option<Line> {
        let expected = self.head.seq + 1;
        let Some(read) = read else {
            self.break_at(expected, Reason::NotAnEntry);
            return None;
        };
        match (read.seq == expected, read.prev == self.head.hash) {
            (true, true) => {
                self.head = self.head.after(line);
                return Some(read);
            }
            (false, true) => self.break_at(expected, Reason::Changed),
            // There is nothing in front of the first line that could have been changed instead.
            (true, false) if expected == 1 => self.break_at(1, Reason::Changed),
            (true, false) => self.state = State::Torn { seq: expected, hash: LineHash::of(line) },
            (false, false) if read.seq > expected => self.state = State::Skipped { seq: expected },
            (false, false) => self.break_at(expected, Reason::OutOfOrder),
        }
        None
    }

    /// Breaks the chain, unless it is broken already.
    pub(super) const fn break_at(&mut self, seq: u64, reason: Reason) {
        if !matches!(self.state, State::Broken(_)) {
            self.state = State::Broken(Break { seq, reason });
        }
    }

    /// The break, if there is one; `end` is the hash that the last line is known to have.
    pub(super) fn end(&self, end: Option<LineHash>) -> Option<Break> {
        match self.state {
            State::Sound => None,
            State::Torn { seq, hash } if end.is_none_or(|end| end == hash) => {
                Some(Break { seq: seq - 1, reason: Reason::Changed })
            }
            State::Torn { seq, .. } => Some(Break { seq, reason: Reason::Changed }),
            State::Skipped { seq } => Some(Break { seq, reason: Reason::Missing }),
            State::Broken(at) => Some(at),
        }
    }
}
