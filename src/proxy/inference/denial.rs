//! Why a request is answered here, in the words of its provider.
//!
//! Clients retry many statuses, and most show only the message. The status is one that the
//! provider's clients do not retry; the message says what happened and how to go on.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde_json::Value;

use super::dialect::Dialect;
use super::members::Malformed;
use super::{Provider, anthropic, gemini, openai};
use crate::body::{Body, full};
use crate::gate::Refusal;

/// Stops the retries of every client that knows it.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

#[derive(Debug)]
pub(crate) enum Denial {
    /// The gate refused the call.
    Ceiling(Refusal),
    Malformed(Malformed),
    TooLarge,
    /// An operation whose price no answer tells.
    Unmetered,
    /// A path that this provider's file does not know.
    Unknown,
    /// A WebSocket: its frames would pass unmetered. Clients go on over HTTP after this status.
    Upgrade,
    /// The provider cannot be reached.
    Upstream,
}

impl Denial {
    /// The stable word for events.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Ceiling(refusal) => refusal.limit,
            Self::Malformed(_) => "malformed",
            Self::TooLarge => "too_large",
            Self::Unmetered => "unmetered",
            Self::Unknown => "unknown_path",
            Self::Upgrade => "websocket",
            Self::Upstream => "upstream_failed",
        }
    }

    pub(crate) fn message(&self) -> String {
        let text = match self {
            Self::Ceiling(refusal) => return refusal.message.clone(),
            Self::Malformed(cause) => return format!("kvro-jail: {cause}"),
            Self::TooLarge => "the request is larger than 64 MiB",
            Self::Unmetered => "this operation cannot be metered, so it does not leave the jail",
            Self::Unknown => "this path does not leave the jail",
            Self::Upgrade => "WebSockets do not leave the jail; use HTTP",
            Self::Upstream => "the provider cannot be reached",
        };
        format!("kvro-jail: {text}")
    }

    /// The answer to a request that has no dialect.
    pub(crate) fn response(&self, provider: Provider) -> Response<Body> {
        self.answer(match provider {
            Provider::Anthropic => anthropic::denial(self),
            Provider::Gemini => gemini::denial(self),
            Provider::OpenAi => openai::denial(self),
        })
    }

    /// The answer to a call.
    pub(crate) fn response_in(&self, dialect: &Dialect, provider: Provider) -> Response<Body> {
        match self {
            Self::Ceiling(_) => self.answer((dialect.ceiling)(self)),
            Self::Malformed(_)
            | Self::TooLarge
            | Self::Unmetered
            | Self::Unknown
            | Self::Upgrade
            | Self::Upstream => self.response(provider),
        }
    }

    fn answer(&self, (status, body): (StatusCode, Value)) -> Response<Body> {
        let mut response = Response::new(full(Bytes::from(body.to_string())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A provider that cannot be reached now may be reached later: only that is worth a retry.
        if !matches!(self, Self::Upstream) {
            headers.insert(X_SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}
