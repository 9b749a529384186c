//! The body of a provider's answer on its way to the agent, read as it passes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::call::Call;
use super::dialect::UsageAsk;
use crate::body::{Body, BodyError};
use crate::meter::{Ending, Meter};

/// Forwards an answer and settles its call: as soon as the bill is known, at the latest when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct Metered {
    inner: Body,
    meter: Meter,
    usage: UsageAsk,
    call: Call,
    /// Bytes to come, where the answer says how many. The receiver stops asking after them.
    left: Option<u64>,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The last bytes are out; the receiver must not take what it has for the whole.
    Breaking,
    Over,
}

impl Metered {
    pub(crate) fn new(inner: Body, meter: Meter, usage: UsageAsk, call: Call) -> Self {
        let left = inner.size_hint().exact();
        let mut body = Self { inner, meter, usage, call, left, state: State::Open };
        if left == Some(0) {
            // Nobody asks for a body without bytes.
            body.finish();
        }
        body
    }

    /// The answer is over; gives the rest of its bytes.
    fn finish(&mut self) -> Bytes {
        let (rest, ending) = self.meter.finish();
        self.state = State::Over;
        // The agent must see a break as a break, or it takes half an answer for a whole one.
        if ending == Ending::Cut && self.call.is_accepted() {
            self.state = State::Breaking;
            self.call.abort("upstream_broke", self.meter.tally());
        } else {
            self.call.settle(self.meter.tally());
        }
        rest
    }

    fn pass(&mut self, data: Bytes) -> Bytes {
        self.call.arrived();
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(data.len() as u64);
        }
        let forward = self.meter.feed(data);
        // The agent may ask again the moment it has the last event, so the money that this call
        // holds back is given back before that event goes on.
        if self.call.is_accepted() && self.meter.is_complete() {
            self.call.settle(self.meter.tally());
        }
        if self.left == Some(0) {
            let rest = self.finish();
            return if rest.is_empty() { forward } else { [forward, rest].concat().into() };
        }
        forward
    }
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            match this.state {
                State::Open => {}
                State::Breaking => {
                    this.state = State::Over;
                    return Poll::Ready(Some(Err(BodyError::Cut)));
                }
                State::Over => return Poll::Ready(None),
            }
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let data = match frame.into_data() {
                        Ok(data) => data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    };
                    let forward = this.pass(data);
                    if !forward.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(forward))));
                    }
                }
                Some(Err(error)) => {
                    this.state = State::Over;
                    // After a whole report the call is paid for already, and this records nothing.
                    if this.call.is_open() {
                        this.call.abort("upstream_broke", this.meter.tally());
                    }
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    let rest = this.finish();
                    if !rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(rest))));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Over
    }

    fn size_hint(&self) -> SizeHint {
        match (self.usage, self.left) {
            (UsageAsk::AsIs, Some(left)) => SizeHint::with_exact(left),
            (UsageAsk::AsIs, None) | (UsageAsk::Inject, _) => SizeHint::default(),
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if self.call.is_open() {
            self.call.abort("agent_left", self.meter.tally());
        }
    }
}
