//! The one body type that passes through the door, and how a body can end early.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;

/// A streamed request or response body.
pub type Body = BoxBody<Bytes, BodyError>;

/// A body that did not arrive whole. The receiver's connection is reset, never closed cleanly: to
/// most clients a clean end would look like a complete answer.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
    #[error("the body was cut at the door")]
    Cut,
    #[error("the body cannot be decoded")]
    Undecodable(#[source] std::io::Error),
}

impl From<BodyError> for std::io::Error {
    fn from(error: BodyError) -> Self {
        Self::other(error)
    }
}

/// A body of known bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// A body without bytes.
#[must_use]
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// A body as it arrives on a connection.
#[must_use]
pub fn incoming(body: Incoming) -> Body {
    body.map_err(BodyError::Broken).boxed()
}
