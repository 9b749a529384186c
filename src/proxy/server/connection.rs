//! One connection from its first byte to whoever carries it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvro_ledger::event::{EgressDenied, UpstreamFailed, Via};
use kvro_ledger::{Actor, Event, Recorder};
use tokio::net::TcpStream;

use super::agent::AgentStream;
use super::destination::Destination;
use super::sniff::{Opening, Sniffed, sniff};
use super::{intercept, tunnel, web};
use crate::config::Config;
use crate::inference::Exchange;
use crate::rules::{Decision, Reason, Server};
use crate::upstream::{Upstream, UpstreamError};

/// A TLS 1.2 record with a fatal alert: clients give up at once and say so.
pub(super) const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
pub(super) const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// What the connections of a run have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) upstream: Upstream,
    pub(super) exchange: Exchange,
    pub(super) recorder: Recorder,
    pub(super) connections: AtomicU64,
}

impl Shared {
    /// Connections are counted from 1.
    pub(super) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn record_denied(&self, server: String, port: u16, reason: Reason) {
        let reason = reason.code().to_owned();
        self.recorder
            .record(Actor::Proxy, Event::EgressDenied(EgressDenied { server, port, reason }));
    }

    pub(super) fn record_failed(&self, server: &Server, error: &UpstreamError) {
        self.recorder.record(
            Actor::Proxy,
            Event::UpstreamFailed(UpstreamFailed {
                server: server.name.to_string(),
                port: server.port,
                reason: error.code().to_owned(),
                detail: error.detail(),
            }),
        );
    }

    pub(super) fn is_metered(&self, server: &Server) -> bool {
        self.config.provider_of(&server.name).is_some()
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(shared: Arc<Shared>, mut stream: TcpStream, port: u16) {
    let destination = match stream.local_addr() {
        Ok(local) => Destination::new(local.ip(), port, &shared.config.address_book),
        Err(error) => return tracing::debug!(%error, "a connection ended as it began"),
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small answers of a connection may be late");
    }
    let decision = destination.judge(&shared.config.rules);
    if let Decision::Allow(rule) = &decision
        && !matches!(port, 80 | 443)
        && !shared.is_metered(destination.server())
    {
        // The server may speak first (SSH, SMTP), so there is nothing to wait for; the address
        // has named the server already, and it alone decides what is dialled.
        let agent = AgentStream::new(stream, Vec::new());
        return tunnel::carry(&shared, agent, destination.server(), rule, Via::Tcp).await;
    }
    let Sniffed { opening, bytes } = sniff(&mut stream).await;
    let agent = AgentStream::new(stream, bytes);
    match opening {
        Opening::Tls(sni) => serve_tls(shared, agent, &destination, decision, sni).await,
        Opening::Http => web::serve(shared, agent, destination, decision).await,
        Opening::BrokenTls => {
            shared.deny(&destination, &decision, Reason::ProtocolUnknown);
            say_goodbye(agent, &DECODE_ERROR).await;
        }
        Opening::Unknown => {
            shared.deny(&destination, &decision, Reason::ProtocolUnknown);
            agent.reset();
        }
        // Clients open connections ahead of need and drop them; that is no attempt, unless the
        // destination itself is one.
        Opening::Closed | Opening::TooSlow => {
            if let Decision::Deny(reason) = decision {
                shared.deny(&destination, &Decision::Deny(reason), reason);
            }
            agent.reset();
        }
    }
}

impl Shared {
    /// Records a refusal; where the destination itself is refused, that is the reason.
    fn deny(&self, destination: &Destination, decision: &Decision, otherwise: Reason) {
        let reason = match decision {
            Decision::Allow(_) => otherwise,
            Decision::Deny(reason) => *reason,
        };
        let server = destination.server();
        self.record_denied(server.name.to_string(), server.port, reason);
    }
}

async fn serve_tls(
    shared: Arc<Shared>,
    agent: AgentStream,
    destination: &Destination,
    decision: Decision,
    sni: Option<String>,
) {
    let server = destination.server();
    let judged = match decision {
        Decision::Allow(rule) => destination.check_sni(sni.as_deref()).map(|()| rule),
        Decision::Deny(reason) => Err(reason),
    };
    match judged {
        Err(reason) => {
            let asked = sni.unwrap_or_else(|| server.name.to_string());
            shared.record_denied(asked, server.port, reason);
            say_goodbye(agent, &ACCESS_DENIED).await;
        }
        Ok(rule) if shared.is_metered(server) => {
            intercept::serve(shared, agent, server.clone(), &rule).await;
        }
        Ok(rule) => tunnel::carry(&shared, agent, server, &rule, Via::Tunnel).await,
    }
}

pub(super) async fn say_goodbye(agent: AgentStream, words: &[u8]) {
    if let Err(error) = agent.close_with(words).await {
        tracing::debug!(%error, "the agent left before the refusal was said");
    }
}
