//! Plain HTTP: each request is judged by itself, and a refusal can say why.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::Executor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::{TokioIo, TokioTimer};
use kvro_ledger::event::Via;
use tokio::io::copy_bidirectional;
use tokio::sync::Mutex;

use super::agent::{AgentStream, Counts};
use super::connection::Shared;
use super::destination::Destination;
use super::passage::Passage;
use super::{refusal, request};
use crate::body::{Body, incoming};
use crate::rules::{Decision, HostPattern, Reason, Server};
use crate::tasks::Tasks;
use crate::upstream::{Dialled, UpstreamError, strip_hop_by_hop};

const HEAD_LIMIT: Duration = Duration::from_secs(75);
const LARGEST_HEAD: usize = 64 * 1024;

/// How the door speaks HTTP/1 to the agent.
pub(super) fn protocol() -> http1::Builder {
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(LARGEST_HEAD);
    protocol
}

/// Serves a connection's requests.
pub(super) async fn serve(
    shared: Arc<Shared>,
    agent: AgentStream,
    destination: Destination,
    decision: Decision,
) {
    let site = Arc::new(Site {
        server: destination.server().clone(),
        shared,
        decision,
        counts: agent.counts(),
        line: Mutex::default(),
        tasks: Tasks::default(),
    });
    let service = service_fn(|request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    });
    let connection = protocol()
        // An agent that has asked all it wants may say so and still read the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(agent), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(server = %site.server, %error, "a connection ended early");
    }
    // What was upgraded goes on; the sender has to go, since its connection waits for it.
    let passage = site.line.lock().await.take().map(|line| line.passage);
    site.tasks.finished().await;
    drop(passage);
}

/// What the requests of one connection have in common.
struct Site {
    shared: Arc<Shared>,
    server: Server,
    decision: Decision,
    counts: Arc<Counts>,
    line: Mutex<Option<Line>>,
    tasks: Tasks,
}

/// The connection to the server.
struct Line {
    sender: SendRequest<Body>,
    passage: Passage,
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match self.judge(&request) {
            Ok(rule) => match self.forward(request, rule).await {
                Ok(response) => response,
                Err(error) => {
                    self.shared.record_failed(&self.server, &error);
                    refusal::failed(&self.server, &error)
                }
            },
            Err((asked, reason)) => {
                self.shared.record_denied(asked.clone(), self.server.port, reason);
                let named = asked.parse().map(|name| Server::new(name, self.server.port));
                refusal::drain(request).await;
                refusal::denied(named.as_ref().unwrap_or(&self.server), reason)
            }
        }
    }

    /// The rule that lets the request through, or what it asked for and why not.
    fn judge(&self, request: &Request<Incoming>) -> Result<&HostPattern, (String, Reason)> {
        let reason = match &self.decision {
            Decision::Allow(_) if self.shared.is_metered(&self.server) => Reason::NotMeterable,
            Decision::Allow(rule) => match request::check(request, &self.server) {
                Ok(()) => return Ok(rule),
                Err(reason) => reason,
            },
            Decision::Deny(reason) => *reason,
        };
        let asked = request::asked(request).unwrap_or_else(|| self.server.name.to_string());
        Err((asked, reason))
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        rule: &HostPattern,
    ) -> Result<Response<Body>, UpstreamError> {
        let protocol = wanted_protocol(&request);
        let theirs = hyper::upgrade::on(&mut request);
        strip_hop_by_hop(request.headers_mut());
        if let Some(protocol) = &protocol {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            request.headers_mut().insert(UPGRADE, protocol.clone());
        }
        let target = request.uri().path_and_query().cloned();
        *request.uri_mut() = target.map_or_else(|| Uri::from_static("/"), Uri::from);
        let mut response = self.send(request.map(incoming), rule).await?;
        if protocol.is_some() && response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.tasks.execute(join(theirs, hyper::upgrade::on(&mut response)));
        } else {
            strip_hop_by_hop(response.headers_mut());
        }
        Ok(response.map(incoming))
    }

    /// Sends over the connection at hand, or over a new one where there is none that lives. A
    /// request is never sent twice: only one that did not leave is handed back by the first.
    async fn send(
        &self,
        mut request: Request<Body>,
        rule: &HostPattern,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let mut line = self.line.lock().await;
        if let Some(line) = line.as_mut() {
            match line.sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let passage = line.take().map(|line| line.passage);
        let line = line.insert(self.connect(rule, passage).await?);
        Ok(line.sender.send_request(request).await?)
    }

    async fn connect(
        &self,
        rule: &HostPattern,
        passage: Option<Passage>,
    ) -> Result<Line, UpstreamError> {
        let Dialled { stream, peer } = self.shared.upstream.dial_tcp(&self.server).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        self.tasks.execute(async {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a server's connection ended early");
            }
        });
        let passage = passage.unwrap_or_else(|| {
            let counts = Arc::clone(&self.counts);
            Passage::open(&self.shared, &self.server, Some(peer), Via::Http, rule, counts)
        });
        Ok(Line { sender, passage })
    }
}

/// The protocol that the agent would like to go on with.
fn wanted_protocol(request: &Request<Incoming>) -> Option<HeaderValue> {
    let connection = request.headers().get(CONNECTION)?.to_str().ok()?;
    let upgrades = connection.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    upgrades.then(|| request.headers().get(UPGRADE).cloned())?
}

/// Carries what two ends speak once they left HTTP.
async fn join(ours: OnUpgrade, theirs: OnUpgrade) {
    let joined: Result<(Upgraded, Upgraded), _> = tokio::try_join!(ours, theirs);
    match joined {
        Ok((ours, theirs)) => {
            let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
            if let Err(error) = copy_bidirectional(&mut ours, &mut theirs).await {
                tracing::debug!(%error, "an upgraded connection broke");
            }
        }
        Err(error) => tracing::debug!(%error, "an upgrade did not come about"),
    }
}
