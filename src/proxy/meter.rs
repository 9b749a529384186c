//! Reads a provider's answer while it passes: what was used, and whether it came to its end.
//!
//! Bytes are forwarded as they came; reading them can neither delay nor change them. The one
//! exception is the usage chunk that the door itself asked for, which is taken out again.

use bytes::Bytes;

use crate::inference::{Dialect, End, Extent, Splitter, Tally, UsageAsk, is_usage_chunk};

/// A larger JSON answer is not read: it is metered as if it had said nothing.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// Follows one answer.
#[derive(Debug)]
pub(crate) struct Meter {
    dialect: &'static Dialect,
    tally: Tally,
    form: Form,
    declared: Declared,
    usage: UsageAsk,
}

/// What the answer looks like. Its own first byte says so: content types are often wrong.
#[derive(Debug)]
enum Form {
    /// Only white space so far.
    Undecided(Vec<u8>),
    Events(Splitter),
    Answer(Vec<u8>),
    /// Cannot be read: encoded, or too large.
    Blind,
}

/// What the content type says that the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    Stream,
    Other,
    /// In a content encoding that was not asked for.
    Encoded,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Whole,
    /// The stream stopped before it said that it was over.
    Cut,
}

impl Meter {
    pub(crate) fn new(dialect: &'static Dialect, usage: UsageAsk, declared: Declared) -> Self {
        let form = match declared {
            Declared::Stream | Declared::Other => Form::Undecided(Vec::new()),
            Declared::Encoded => Form::Blind,
        };
        Self { dialect, tally: Tally::default(), form, declared, usage }
    }

    /// Reads the next piece; gives what is to be forwarded for it.
    pub(crate) fn feed(&mut self, piece: Bytes) -> Bytes {
        let Form::Undecided(seen) = &mut self.form else {
            return self.forward(piece.clone(), |meter| meter.read(&piece));
        };
        seen.extend_from_slice(&piece);
        let Some(form) = sniff(seen) else {
            return self.forward(piece, |_| Bytes::new());
        };
        let seen = Bytes::from(std::mem::take(seen));
        self.form = form;
        self.forward(piece, |meter| meter.read(&seen))
    }

    /// The answer ended; gives the rest that is to be forwarded.
    pub(crate) fn finish(&mut self) -> (Bytes, Ending) {
        let (dialect, tally) = (self.dialect, &mut self.tally);
        let mut rest = Vec::new();
        let ending = match &mut self.form {
            Form::Undecided(seen) => {
                rest.append(seen);
                match self.declared {
                    Declared::Stream => Ending::Cut,
                    Declared::Other | Declared::Encoded => Ending::Whole,
                }
            }
            Form::Answer(body) => {
                (dialect.read_answer)(tally, body);
                body.clear();
                Ending::Whole
            }
            Form::Events(splitter) => {
                splitter.finish(|event| {
                    (dialect.read_event)(tally, event.data);
                    rest.extend_from_slice(event.raw);
                });
                if tally.end == End::Open && !splitter.overflowed() {
                    Ending::Cut
                } else {
                    Ending::Whole
                }
            }
            Form::Blind => Ending::Whole,
        };
        match self.usage {
            UsageAsk::AsIs => (Bytes::new(), ending),
            UsageAsk::Inject => (Bytes::from(rest), ending),
        }
    }

    /// Whether nothing that is still to come can change the bill.
    pub(crate) fn is_complete(&self) -> bool {
        self.tally.extent() == Extent::Whole && self.tally.end == End::Said
    }

    pub(crate) const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Reads by `read`, and forwards `piece` unless what was read says what goes on.
    fn forward(&mut self, piece: Bytes, read: impl FnOnce(&mut Self) -> Bytes) -> Bytes {
        let filtered = read(self);
        match self.usage {
            UsageAsk::AsIs => piece,
            UsageAsk::Inject => filtered,
        }
    }

    /// Reads `piece`; gives what of it, and of what was kept back before, may go on.
    fn read(&mut self, piece: &Bytes) -> Bytes {
        let (dialect, tally) = (self.dialect, &mut self.tally);
        match &mut self.form {
            Form::Undecided(_) | Form::Blind => piece.clone(),
            Form::Answer(body) => {
                body.extend_from_slice(piece);
                if body.len() > MAX_ANSWER {
                    self.form = Form::Blind;
                }
                piece.clone()
            }
            Form::Events(splitter) => {
                let mut forward = Vec::new();
                let filter = self.usage;
                splitter.feed(piece, |event| {
                    (dialect.read_event)(tally, event.data);
                    if filter == UsageAsk::Inject && !is_usage_chunk(event.data) {
                        forward.extend_from_slice(event.raw);
                    }
                });
                Bytes::from(forward)
            }
        }
    }
}

/// What an answer is, by its first byte that counts.
fn sniff(seen: &[u8]) -> Option<Form> {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    if seen.len() < BOM.len() && BOM.starts_with(seen) {
        return None;
    }
    let text = seen.strip_prefix(BOM).unwrap_or(seen);
    match text.iter().find(|byte| !byte.is_ascii_whitespace())? {
        b'{' | b'[' => Some(Form::Answer(Vec::new())),
        _ => Some(Form::Events(Splitter::default())),
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
