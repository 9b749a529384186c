//! `index.head`: how far the index reaches, promised beside it by whoever wrote last.

use std::fs::File;
use std::io::{self, Read};

use crate::chain::{Head, LineHash};
use crate::index::{Tail, read_range};

pub(crate) const PROMISE: &str = "index.head";
/// `<seq, 20 digits> <bytes, 20 digits> <64 hex>\n`: one size, so that it is overwritten at once.
const PROMISE_LEN: usize = 20 + 1 + 20 + 1 + 64 + 1;

/// What `index.head` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    Nothing,
    Garbled,
    Reaches(Head),
}

/// Whether the index is what was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// To the last line.
    Kept,
    /// The index goes on behind the promise: a writer died between the two.
    Outgrown,
    Broken {
        promised: Option<Head>,
    },
}

impl Promise {
    pub(crate) fn read(file: &File) -> io::Result<Self> {
        let mut bytes = Vec::new();
        file.take(PROMISE_LEN as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Nothing;
        }
        let parsed = || {
            let text = str::from_utf8(bytes).ok()?;
            let mut words = text.strip_suffix('\n')?.split(' ');
            let seq = words.next()?.parse().ok()?;
            let len = words.next()?.parse().ok()?;
            let head = Head { seq, bytes: len, hash: words.next()?.parse().ok()? };
            (Self::text(head) == text).then_some(head)
        };
        parsed().map_or(Self::Garbled, Self::Reaches)
    }

    pub(crate) fn text(head: Head) -> String {
        format!("{:020} {:020} {}\n", head.seq, head.bytes, head.hash)
    }

    /// The hash of the last line of an index of `len` bytes, if that much was promised.
    pub(crate) fn hash_at(self, len: u64) -> Option<LineHash> {
        match self {
            Self::Reaches(head) if head.bytes == len => Some(head.hash),
            Self::Reaches(_) | Self::Nothing | Self::Garbled => None,
        }
    }

    /// Judges the index that ends in `head`.
    pub(crate) fn judge(self, index: &File, head: Head) -> io::Result<Keeping> {
        let promised = match self {
            Self::Reaches(promised) => promised,
            // The very first writer may die before its promise.
            Self::Nothing if head.seq <= 1 => Head::EMPTY,
            Self::Nothing | Self::Garbled => return Ok(Keeping::Broken { promised: None }),
        };
        if promised == head {
            return Ok(Keeping::Kept);
        }
        let broken = Keeping::Broken { promised: Some(promised) };
        if promised.bytes >= head.bytes {
            return Ok(broken);
        }
        let before = read_range(index, promised.bytes.saturating_sub(4096), promised.bytes)?;
        let start = promised.bytes.saturating_sub(before.len() as u64);
        let same = Tail::within(start, before)
            .is_some_and(|tail| tail.head == promised && tail.torn.is_empty());
        Ok(if same { Keeping::Outgrown } else { broken })
    }
}
