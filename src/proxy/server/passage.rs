//! The record of one connection that was let out: its beginning, and in every case its end.

use std::net::SocketAddr;
use std::sync::Arc;

use kvro_ledger::event::{EgressAllowed, EgressClosed, Via};
use kvro_ledger::{Actor, Event};
use tokio::time::Instant;

use super::agent::Counts;
use super::connection::Shared;
use crate::rules::{HostPattern, Server};

/// Records `egress.allowed` when made and `egress.closed` when dropped, also by a run that ends.
#[derive(Debug)]
pub(super) struct Passage {
    shared: Arc<Shared>,
    connection: u64,
    counts: Arc<Counts>,
    opened: Instant,
}

impl Passage {
    /// `peer` is unknown where requests share pooled connections.
    pub(super) fn open(
        shared: &Arc<Shared>,
        server: &Server,
        peer: Option<SocketAddr>,
        via: Via,
        rule: &HostPattern,
        counts: Arc<Counts>,
    ) -> Self {
        let connection = shared.next_connection();
        shared.recorder.record(
            Actor::Proxy,
            Event::EgressAllowed(EgressAllowed {
                connection,
                server: server.name.to_string(),
                port: server.port,
                peer: peer.map_or_else(String::new, |peer| peer.to_string()),
                via,
                rule: rule.to_string(),
            }),
        );
        Self { shared: Arc::clone(shared), connection, counts, opened: Instant::now() }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let lasted = self.opened.elapsed().as_millis();
        self.shared.recorder.record(
            Actor::Proxy,
            Event::EgressClosed(EgressClosed {
                connection: self.connection,
                bytes_sent: self.counts.sent(),
                bytes_received: self.counts.received(),
                duration_ms: u64::try_from(lasted).unwrap_or(u64::MAX),
            }),
        );
    }
}
