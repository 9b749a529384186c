//! An answer's body: its parts, when each may leave, and what each says was used.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::Value;
use tokio::time::Sleep;

use super::Usage;
use super::tally::{Entry, Tally};

/// One piece of a body.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    /// What the answer has said once this part is out.
    pub(crate) said: Usage,
}

/// A body that counts itself: usage as the part that reports it leaves, the log line at its end.
#[derive(Debug)]
pub(crate) struct Answer {
    parts: VecDeque<Part>,
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    said: Usage,
    entry: Option<Entry>,
    tally: Tally,
}

impl Part {
    /// A whole JSON body.
    pub(crate) fn json(value: &Value, said: Usage) -> Self {
        Self { bytes: Bytes::from(value.to_string()), said }
    }

    /// An event of a stream, with its name where the API gives it one.
    pub(crate) fn event(name: Option<&str>, data: &Value, said: Usage) -> Self {
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        Self { bytes: Bytes::from(format!("{name}data: {data}\n\n")), said }
    }
}

impl Answer {
    pub(crate) fn new(parts: Vec<Part>, pause: Duration, entry: Entry, tally: Tally) -> Self {
        let parts = VecDeque::from(parts);
        Self { parts, pause, sleep: None, said: Usage::default(), entry: Some(entry), tally }
    }

    fn close(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            entry.usage = (self.said != Usage::default()).then_some(self.said);
            entry.whole = self.parts.is_empty();
            self.tally.log(&entry);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.pause.is_zero() && !self.parts.is_empty() {
            let pause = self.pause;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            ready!(sleep.as_mut().poll(context));
            self.sleep = None;
        }
        let Some(part) = self.parts.pop_front() else {
            return Poll::Ready(None);
        };
        // Counted before it is written, so that nobody who has read it can find it uncounted.
        self.tally.sent(self.said, part.said);
        self.said = part.said;
        if self.parts.is_empty() {
            self.close();
        }
        Poll::Ready(Some(Ok(Frame::data(part.bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.parts.iter().collect::<Vec<_>>()[..] {
            [] => SizeHint::with_exact(0),
            // Only a JSON body is one part; a stream's length is not known ahead.
            [only] if self.said == Usage::default() => {
                SizeHint::with_exact(u64::try_from(only.bytes.len()).unwrap_or(u64::MAX))
            }
            _ => SizeHint::default(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.close();
    }
}
