//! Why a permitted server could not be reached or did not answer.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::resolve::ResolveError;
use crate::rules::Reason;

/// No connection came about. Cheap to clone, since requests that wait for one connection share it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialError {
    #[error("the name cannot be resolved")]
    Resolve(#[from] ResolveError),
    #[error("{0} is a private address")]
    Private(IpAddr),
    #[error("{0} is a metadata service")]
    Metadata(IpAddr),
    #[error("cannot connect to {address}")]
    Connect {
        address: SocketAddr,
        #[source]
        cause: Arc<io::Error>,
    },
    #[error("no trusted authority could be read from this host")]
    NoRoots,
    #[error("the server's certificate is not trusted")]
    Certificate(#[source] rustls::Error),
    #[error("no TLS session came about")]
    Handshake(#[source] Arc<io::Error>),
    #[error("this name cannot be asked for by TLS")]
    Name,
}

impl DialError {
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Resolve(ResolveError::NotFound) => "name_not_found",
            Self::Resolve(ResolveError::Unanswered(_)) => "name_not_answered",
            Self::Private(_) => Reason::AddressPrivate.code(),
            Self::Metadata(_) => Reason::AddressMetadata.code(),
            Self::Connect { .. } => "unreachable",
            Self::NoRoots | Self::Certificate(_) => "certificate",
            Self::Handshake(_) | Self::Name => "handshake",
        }
    }
}

/// A request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the request cannot be put to this server")]
    Request(#[source] http::Error),
    #[error("the server did not answer")]
    Unanswered(#[source] Box<dyn Error + Send + Sync>),
}

impl UpstreamError {
    /// The stable code of `upstream.failed` and of the 502 body.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Dial(error) => error.code(),
            Self::Request(_) => "request_malformed",
            Self::Unanswered(_) => "unanswered",
        }
    }

    /// The rule that refused the server's address, where it was one and not the network.
    #[must_use]
    pub const fn refusal(&self) -> Option<Reason> {
        match self {
            Self::Dial(DialError::Private(_)) => Some(Reason::AddressPrivate),
            Self::Dial(DialError::Metadata(_)) => Some(Reason::AddressMetadata),
            Self::Dial(_) | Self::Request(_) | Self::Unanswered(_) => None,
        }
    }

    /// The error and its causes in one line.
    #[must_use]
    pub fn detail(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            line = format!("{line}: {error}");
            cause = error.source();
        }
        line
    }
}

impl From<hyper_util::client::legacy::Error> for UpstreamError {
    fn from(error: hyper_util::client::legacy::Error) -> Self {
        let mut cause = error.source();
        while let Some(inner) = cause {
            if let Some(dial) = inner.downcast_ref::<DialError>() {
                return Self::Dial(dial.clone());
            }
            cause = inner.source();
        }
        Self::Unanswered(Box::new(error))
    }
}

impl From<hyper::Error> for UpstreamError {
    fn from(error: hyper::Error) -> Self {
        Self::Unanswered(Box::new(error))
    }
}
