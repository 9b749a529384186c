//! What an answer has said about its usage so far.

use crate::gate::Usage;

/// Filled event by event by a dialect's reader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Field by field, what was said last.
    pub(crate) usage: Usage,
    pub(crate) extent: Extent,
    pub(crate) end: End,
}

/// How much of the bill is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Extent {
    #[default]
    Nothing,
    /// The input side; the output may have grown since.
    Input,
    Whole,
}

/// Whether the answer said that it is over. A stream that stops before it does was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum End {
    #[default]
    Open,
    Said,
}

impl Tally {
    /// What was said, as far as it can be trusted. No generation takes nothing, so a report of
    /// nothing is none.
    pub(crate) fn extent(&self) -> Extent {
        if self.usage.total().input_side() == 0 { Extent::Nothing } else { self.extent }
    }
}
