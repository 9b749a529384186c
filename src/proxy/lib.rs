//! The one door: which bytes may leave a jail, and what inference costs.
//!
//! Outside of the jail, on the host's network, this crate serves listeners that were made inside:
//! it answers names, judges connections, carries the allowed ones out and meters those that cost
//! money. It deliberately knows nothing of namespaces, processes or policy files.

mod address_book;
pub mod body;
mod config;
mod dns;
pub mod gate;
pub mod inference;
mod meter;
pub mod price;
pub mod rules;
mod server;
mod tasks;
pub mod tls;
pub mod upstream;

pub use address_book::AddressBook;
pub use body::Body;
pub use config::Config;
pub use rules::{HostPattern, Rules, Server, ServerName};
pub use server::{Door, DoorError, Listeners};
pub use tls::RunCa;
pub use upstream::{Outside, Upstream, UpstreamError};
