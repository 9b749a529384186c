//! The way out: resolving, checking, dialling and asking permitted servers from the host's network.

mod address;
mod client;
mod dial;
mod error;
mod headers;
mod resolve;
mod secured;
mod trust;

pub use client::{Outside, Upstream};
pub(crate) use dial::Dialled;
pub use error::{DialError, UpstreamError};
pub use headers::strip_hop_by_hop;
pub use resolve::{Resolve, ResolveError, Resolving, SystemResolver};
