//! Inference servers: TLS ends at the door, so that each call can be metered and paid for.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kvro_ledger::event::{AlertRaised, Via};
use kvro_ledger::{Actor, Event};
use rustls::AlertDescription;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::agent::AgentStream;
use super::connection::{INTERNAL_ERROR, Shared, say_goodbye};
use super::passage::Passage;
use super::{refusal, request, web};
use crate::rules::{HostPattern, Reason, Server};

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Is `server` towards the agent and serves its requests.
pub(super) async fn serve(
    shared: Arc<Shared>,
    agent: AgentStream,
    server: Server,
    rule: &HostPattern,
) {
    let config = match shared.config.ca.server_config(&server.name, Timestamp::now()) {
        Ok(config) => config,
        Err(error) => {
            let (what, detail) = ("run_ca".to_owned(), error.to_string());
            shared.recorder.record(Actor::Proxy, Event::AlertRaised(AlertRaised { what, detail }));
            return say_goodbye(agent, &INTERNAL_ERROR).await;
        }
    };
    let counts = agent.counts();
    let shaken = timeout(HANDSHAKE_LIMIT, TlsAcceptor::from(config).accept(agent));
    let stream = match shaken.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => stream,
        Err(error) if is_distrust(&error) => {
            let name = server.name.to_string();
            return shared.record_denied(name, server.port, Reason::CaNotTrusted);
        }
        Err(error) => return tracing::debug!(%server, %error, "no TLS session came about"),
    };
    let _passage = Passage::open(&shared, &server, None, Via::Intercept, rule, counts);
    let service = service_fn(|request| {
        let (shared, server) = (&shared, &server);
        async move {
            Ok::<_, Infallible>(match request::check(&request, server) {
                Ok(()) => shared.exchange.serve(server, request).await,
                Err(reason) => {
                    let asked = request::asked(&request).unwrap_or_else(|| server.name.to_string());
                    shared.record_denied(asked, server.port, reason);
                    refusal::drain(request).await;
                    refusal::denied(server, reason)
                }
            })
        }
    });
    // No half-close: an agent that hangs up must end its call at once, since that costs money.
    let mut connection = web::protocol().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = (&mut connection).await {
        tracing::debug!(%server, %error, "an intercepted connection ended early");
        // An answer that broke off must not look whole: to most clients a clean end is one.
        connection.into_parts().io.into_inner().into_inner().0.reset();
    }
}

/// Whether the client gave up because it does not know the run's authority.
fn is_distrust(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(
        cause,
        Some(rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
        ))
    )
}
