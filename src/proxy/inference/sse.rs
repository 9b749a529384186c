//! Splits a server-sent event stream into events, however its bytes are cut.
//!
//! The splitter keeps each event's bytes as they came, so that a stream can be forwarded unchanged
//! while it is read, or without one of its events. It accepts whatever real clients accept: any of
//! the three line ends, `data:` with or without a space, data over many lines, comments, a byte
//! order mark, and a last event that no blank line ends.

use memchr::memchr2;

/// A larger event is not read: its stream is forwarded, and metered as if it had said nothing.
const MAX_EVENT: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event, as it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// Its bytes with the blank line behind it.
    pub(crate) raw: &'a [u8],
    /// Its data lines, joined; empty for comments and blank lines.
    pub(crate) data: &'a [u8],
}

/// Collects events from pieces of a stream.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    /// The event in progress.
    raw: Vec<u8>,
    /// Its data so far.
    data: Vec<u8>,
    /// Where its current line begins.
    line: usize,
    /// How much of the current line is known to hold no line end.
    scanned: usize,
    /// The last byte was a CR that ended a line; an LF behind it belongs to the same line end.
    after_cr: bool,
    lines: Lines,
    overflowed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Lines {
    /// Nothing of the stream was read: a byte order mark may come.
    #[default]
    First,
    Without,
    /// The event in progress has a line of data.
    Data,
}

impl Splitter {
    /// Takes the next piece and tells `each` about the events that it completes.
    pub(crate) fn feed(&mut self, piece: &[u8], mut each: impl FnMut(Event<'_>)) {
        if self.overflowed {
            each(Event { raw: piece, data: b"" });
            return;
        }
        self.raw.extend_from_slice(piece);
        let mut start = 0;
        while let Some(end) = self.next_line() {
            if end == Line::Blank {
                each(Event { raw: &self.raw[start..self.line], data: &self.data });
                start = self.line;
                self.data.clear();
                self.lines = Lines::Without;
            }
        }
        self.raw.drain(..start);
        self.line -= start;
        if self.raw.len() > MAX_EVENT {
            self.overflowed = true;
            each(Event { raw: &self.raw, data: b"" });
            self.raw = Vec::new();
            self.data = Vec::new();
        }
    }

    /// The stream ended: what is left is its last event, since providers may leave out the blank
    /// line behind it.
    pub(crate) fn finish(&mut self, each: impl FnOnce(Event<'_>)) {
        if self.overflowed {
            return;
        }
        if self.line < self.raw.len() {
            let line = self.line..self.raw.len();
            self.read_line(line.start, line.end);
        }
        if !self.raw.is_empty() {
            each(Event { raw: &self.raw, data: &self.data });
        }
        self.raw.clear();
        self.data.clear();
        (self.line, self.scanned) = (0, 0);
    }

    /// Whether an event was too large to be read.
    pub(crate) const fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Reads one whole line, if there is one.
    fn next_line(&mut self) -> Option<Line> {
        if self.after_cr && self.line < self.raw.len() {
            self.after_cr = false;
            if self.raw[self.line] == b'\n' {
                self.line += 1;
            }
        }
        let from = self.line + self.scanned;
        let Some(at) = memchr2(b'\r', b'\n', &self.raw[from.min(self.raw.len())..]) else {
            self.scanned = self.raw.len() - self.line;
            return None;
        };
        let end = from + at;
        self.scanned = 0;
        let blank = self.read_line(self.line, end);
        self.line = end + 1;
        if self.raw[end] == b'\r' {
            match self.raw.get(self.line) {
                Some(b'\n') => self.line += 1,
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        Some(blank)
    }

    fn read_line(&mut self, start: usize, end: usize) -> Line {
        let mut line = &self.raw[start..end];
        if self.lines == Lines::First {
            line = line.strip_prefix(BOM).unwrap_or(line);
            self.lines = Lines::Without;
        }
        if line.is_empty() {
            return Line::Blank;
        }
        let value = if line == b"data" { Some(&b""[..]) } else { line.strip_prefix(b"data:") };
        if let Some(value) = value {
            if self.lines == Lines::Data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.lines = Lines::Data;
        }
        Line::Full
    }
}

#[derive(PartialEq, Eq)]
enum Line {
    Full,
    Blank,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data of every event that has some, and all raw bytes joined.
    fn split(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let (mut data, mut raw) = (Vec::new(), Vec::new());
        let mut splitter = Splitter::default();
        let mut each = |event: Event<'_>| {
            raw.extend_from_slice(event.raw);
            if !event.data.is_empty() {
                data.push(String::from_utf8_lossy(event.data).into_owned());
            }
        };
        for piece in pieces {
            splitter.feed(piece, &mut each);
        }
        splitter.finish(&mut each);
        (data, raw)
    }

    #[test]
    fn every_spelling_of_an_event_is_read_alike() {
        for stream in [
            "data: {\"a\":1}\n\ndata: [DONE]\n\n",
            "data:{\"a\":1}\r\n\r\ndata:[DONE]\r\n\r\n",
            "data: {\"a\":1}\r\rdata: [DONE]\r\r",
            "\u{feff}data: {\"a\":1}\n\ndata: [DONE]",
            ": hello\n\nevent: x\nid: 1\ndata: {\"a\":1}\nretry: 5\n\n\n\ndata: [DONE]\n",
            "\r\ndata: {\"a\":1}\n\r\ndata: [DONE]\r\n\n",
        ] {
            let (data, raw) = split(&[stream.as_bytes()]);
            assert_eq!(data, ["{\"a\":1}", "[DONE]"], "{stream:?}");
            assert_eq!(raw, stream.as_bytes());
        }
    }

    #[test]
    fn data_over_many_lines_is_joined_by_line_feeds() {
        let stream = b"data: {\ndata\ndata:  \"a\": 1}\nevent: x\n\ndatax: no\n\n";
        assert_eq!(split(&[stream]).0, ["{\n\n \"a\": 1}"]);
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_start() {
        let stream = "data: 1\n\n\u{feff}data: 2\n\n".as_bytes();
        assert_eq!(split(&[stream]).0, ["1"]);
    }

    #[test]
    fn an_event_too_large_to_read_is_still_forwarded_whole() {
        let large = vec![b'x'; MAX_EVENT];
        let (data, raw) = split(&[b"data: 1\n\ndata: ", &large, b"\n\ndata: 2\n\n"]);
        assert_eq!(data, ["1"]);
        assert_eq!(raw, [b"data: 1\n\ndata: ", &large[..], b"\n\ndata: 2\n\n"].concat());
    }

    #[test]
    fn the_events_do_not_depend_on_where_the_stream_is_cut() {
        let stream = "\u{feff}: c\r\n\r\nevent: é\rdata: {\"é\":\r\ndata:1}\r\rdata: 2\n\ndata:3\r\n\r\n: x\n\ndata: 4".as_bytes();
        let whole = split(&[stream]);
        assert_eq!(whole.0, ["{\"é\":\n1}", "2", "3", "4"]);
        for at in 0..=stream.len() {
            for then in at..=stream.len() {
                let cut = [&stream[..at], &stream[at..then], &stream[then..]];
                assert_eq!(split(&cut), whole, "cut at {at} and {then}");
            }
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(split(&bytes), whole);
    }

    proptest! {
        #[test]
        fn any_bytes_pass_unchanged_and_are_read_alike_however_cut(
            stream in prop::collection::vec(prop::sample::select(b"da: t\r\n\xef\xbb\xbf".to_vec()), 0..80),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&stream[from..cut]);
                from = cut;
            }
            pieces.push(&stream[from..]);
            let whole = split(&[&stream]);
            prop_assert_eq!(&whole.1, &stream);
            prop_assert_eq!(split(&pieces), whole);
        }
    }
}
