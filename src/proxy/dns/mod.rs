//! The jail's name server: allowed names get an address of the door, others do not exist.

mod answer;
mod datagram;
mod serve;

pub(crate) use datagram::learn_destinations;
pub(crate) use serve::{Zone, serve_stream, serve_udp};

#[cfg(test)]
mod tests;
