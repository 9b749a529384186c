//! Carries bytes that the door does not read, both ways, until both sides are done.
//!
//! What is said inside is deliberately not known here: a server that answers for several names
//! behind one address can be asked for any of them once the handshake has named an allowed one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kvro_ledger::event::Via;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::agent::AgentStream;
use super::connection::{INTERNAL_ERROR, Shared, say_goodbye};
use super::passage::Passage;
use crate::rules::{HostPattern, Server};
use crate::upstream::Dialled;

/// A tunnel in which nothing moved for this long is taken for abandoned.
const IDLE_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Dials `server` and joins the agent to it.
pub(super) async fn carry(
    shared: &Arc<Shared>,
    mut agent: AgentStream,
    server: &Server,
    rule: &HostPattern,
    via: Via,
) {
    let Dialled { mut stream, peer } = match shared.upstream.dial_tcp(server).await {
        Ok(dialled) => dialled,
        Err(error) => {
            shared.record_failed(server, &error.into());
            return match via {
                Via::Tunnel => say_goodbye(agent, &INTERNAL_ERROR).await,
                Via::Tcp | Via::Http | Via::Intercept => agent.reset(),
            };
        }
    };
    let counts = agent.counts();
    let _passage = Passage::open(shared, server, Some(peer), via, rule, counts);
    if let Err(error) = join(&mut agent, &mut stream).await {
        tracing::debug!(%server, %error, "a tunnel broke");
        // What broke on one side must not look whole on the other.
        agent.reset();
        if let Err(error) = stream.set_zero_linger() {
            tracing::debug!(%error, "a connection is closed instead of reset");
        }
    }
}

/// Copies both ways; the end of one direction is passed on, and the other goes on.
async fn join(agent: &mut AgentStream, stream: &mut TcpStream) -> io::Result<()> {
    let counts = agent.counts();
    let moved = || (counts.sent(), counts.received());
    let copying = copy_bidirectional(agent, stream);
    tokio::pin!(copying);
    loop {
        let before = moved();
        tokio::select! {
            copied = &mut copying => return copied.map(drop),
            () = sleep(IDLE_LIMIT) => {
                if moved() == before {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
}
