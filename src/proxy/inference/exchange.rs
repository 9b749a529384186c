//! Serves the requests of intercepted connections: sorts, admits, forwards, meters, settles.
//!
//! One choke point for every route: a request that can cost money leaves only with a permit, and
//! what is not known does not leave at all.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderMap,
    HeaderValue, UPGRADE,
};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use kvro_ledger::event::{InferenceRefused, InferenceRequested, UpstreamFailed};
use kvro_ledger::{Actor, Event, Recorder};

use super::call::Call;
use super::decode::{Coding, MAX_REQUEST};
use super::decoded::decoded;
use super::denial::Denial;
use super::dialect::{Dialect, UsageAsk};
use super::metered::Metered;
use super::order::{Form, Order, prepare};
use super::route::Route;
use super::tally::Tally;
use super::{Provider, provider_of};
use crate::body::{Body, full, incoming};
use crate::gate::{Gate, Patience};
use crate::meter::{Declared, Meter};
use crate::rules::{Server, ServerName};
use crate::upstream::{Upstream, UpstreamError, strip_hop_by_hop};

/// Bytes of a request that are read between two other tasks without holding them up.
const READ_AT_ONCE: usize = 64 * 1024;

/// The one way from an intercepted connection to a provider. Clones share everything.
#[derive(Debug, Clone)]
pub struct Exchange {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    transport: Box<dyn Transport>,
    gate: Arc<dyn Gate>,
    recorder: Recorder,
    /// Servers that the policy maps to a provider.
    mapped: BTreeMap<ServerName, Provider>,
    calls: AtomicU64,
}

pub(crate) type Sending<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Body>, UpstreamError>> + Send + 'a>>;

/// What carries a request to its provider.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    fn send<'a>(&'a self, server: &'a Server, request: Request<Body>) -> Sending<'a>;
}

impl Transport for Upstream {
    fn send<'a>(&'a self, server: &'a Server, request: Request<Body>) -> Sending<'a> {
        Box::pin(async move { Ok(Self::send(self, server, request).await?.map(incoming)) })
    }
}

impl Exchange {
    #[must_use]
    pub fn new(
        upstream: Upstream,
        gate: Arc<dyn Gate>,
        recorder: Recorder,
        mapped: BTreeMap<ServerName, Provider>,
    ) -> Self {
        Self::over(Box::new(upstream), gate, recorder, mapped)
    }

    pub(crate) fn over(
        transport: Box<dyn Transport>,
        gate: Arc<dyn Gate>,
        recorder: Recorder,
        mapped: BTreeMap<ServerName, Provider>,
    ) -> Self {
        let calls = AtomicU64::new(0);
        Self { shared: Arc::new(Shared { transport, gate, recorder, mapped, calls }) }
    }

    /// Whose habits `server` has; only such a server is intercepted.
    #[must_use]
    pub fn provider(&self, server: &ServerName) -> Option<Provider> {
        self.shared.mapped.get(server).copied().or_else(|| provider_of(server.as_str()))
    }

    /// Answers one request. Never fails: a failure is a response in the provider's shape.
    pub async fn serve(&self, server: &Server, request: Request<Incoming>) -> Response<Body> {
        self.answer(server, request.map(incoming)).await
    }

    pub(crate) async fn answer(&self, server: &Server, request: Request<Body>) -> Response<Body> {
        let arrived = Instant::now();
        let Some(provider) = self.provider(&server.name) else {
            return Denial::Unknown.response(Provider::OpenAi);
        };
        let (parts, body) = request.into_parts();
        if parts.headers.contains_key(UPGRADE) || parts.method == Method::CONNECT {
            return Denial::Upgrade.response(provider);
        }
        match Route::of(provider, parts.method.as_str(), parts.uri.path()) {
            Route::Billable(dialect, model) => {
                let model = model.map(str::to_owned);
                let request = Billable { provider, dialect, server, arrived };
                Box::pin(self.bill(&request, model, parts, body)).await
            }
            Route::Free => self.pass(provider, server, parts, body).await,
            Route::Unmetered => self.refuse(provider, None, "", &Denial::Unmetered),
            Route::Unknown => Denial::Unknown.response(provider),
        }
    }

    /// Forwards a request that costs nothing.
    async fn pass(
        &self,
        provider: Provider,
        server: &Server,
        mut parts: Parts,
        body: Body,
    ) -> Response<Body> {
        strip_hop_by_hop(&mut parts.headers);
        match self.shared.transport.send(server, Request::from_parts(parts, body)).await {
            Ok(mut response) => {
                strip_hop_by_hop(response.headers_mut());
                response
            }
            Err(error) => {
                self.record_failure(server, &error);
                Denial::Upstream.response(provider)
            }
        }
    }

    /// `model` is the one that the path names, if it names one.
    async fn bill(
        &self,
        request: &Billable<'_>,
        model: Option<String>,
        parts: Parts,
        body: Body,
    ) -> Response<Body> {
        let Billable { provider, dialect, .. } = *request;
        let body = match Limited::new(body, MAX_REQUEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return self.refuse(provider, Some(dialect), "", &Denial::TooLarge);
            }
            // The agent is gone; nobody reads this.
            Err(_) => return Denial::Unknown.response(provider),
        };
        let encoding = parts.headers.get(CONTENT_ENCODING).map(HeaderValue::to_str);
        let encoding = encoding.map(|text| text.unwrap_or("unreadable").to_owned());
        let gate = Arc::clone(&self.shared.gate);
        let is_quick = gate.patience() == Patience::None && body.len() <= READ_AT_ONCE;
        let prepare =
            move || prepare(provider, dialect, model, encoding.as_deref(), &body, gate.as_ref());
        // The gate may wait for the disk, and a large request takes its time to read; a thread of
        // its own costs a small one more than the reading does.
        let prepared =
            if is_quick { Ok(prepare()) } else { tokio::task::spawn_blocking(prepare).await };
        match prepared {
            Ok(Ok(order)) => self.send(request, parts, order).await,
            Ok(Err(refused)) => {
                self.refuse(provider, Some(dialect), &refused.model, &refused.denial)
            }
            // The gate panicked: without a judgement nothing leaves.
            Err(_) => Denial::Upstream.response(provider),
        }
    }

    async fn send(&self, request: &Billable<'_>, mut parts: Parts, order: Order) -> Response<Body> {
        let Billable { provider, dialect, server, arrived } = *request;
        strip_hop_by_hop(&mut parts.headers);
        let headers = &mut parts.headers;
        headers.remove(EXPECT);
        headers.remove(CONTENT_LENGTH);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let Order { body, form, usage, permit } = order;
        if form == Form::Edited {
            headers.remove(CONTENT_ENCODING);
        }
        let number = self.shared.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let reservation = permit.reservation();
        self.shared.recorder.record(
            Actor::Meter,
            Event::InferenceRequested(InferenceRequested {
                call: number,
                provider: provider.name().to_owned(),
                operation: dialect.operation.to_owned(),
                model: reservation.model.clone(),
                server: server.name.as_str().to_owned(),
                reserved_usd: reservation.cost,
                request_bytes: body.len() as u64,
            }),
        );
        let mut call = Call::new(number, permit.leave(), self.shared.recorder.clone(), arrived);
        let upstream = Request::from_parts(parts, full(body));
        match self.shared.transport.send(server, upstream).await {
            Ok(response) => meter(response, dialect, usage, call),
            Err(error) => {
                self.record_failure(server, &error);
                match error {
                    // No connection came about, so nothing was asked.
                    UpstreamError::Dial(_) | UpstreamError::Request(_) => call.reject(),
                    UpstreamError::Unanswered(_) => {
                        call.abort("upstream_broke", &Tally::default());
                    }
                }
                Denial::Upstream.response(provider)
            }
        }
    }

    fn refuse(
        &self,
        provider: Provider,
        dialect: Option<&Dialect>,
        model: &str,
        denial: &Denial,
    ) -> Response<Body> {
        let response = match dialect {
            Some(dialect) => denial.response_in(dialect, provider),
            None => denial.response(provider),
        };
        self.shared.recorder.record(
            Actor::Meter,
            Event::InferenceRefused(InferenceRefused {
                provider: provider.name().to_owned(),
                model: model.to_owned(),
                reason: denial.code().to_owned(),
                status: response.status().as_u16(),
            }),
        );
        response
    }

    fn record_failure(&self, server: &Server, error: &UpstreamError) {
        self.shared.recorder.record(
            Actor::Proxy,
            Event::UpstreamFailed(UpstreamFailed {
                server: server.name.as_str().to_owned(),
                port: server.port,
                reason: error.code().to_owned(),
                detail: error.detail(),
            }),
        );
    }
}

/// A request that may cost money.
#[derive(Clone, Copy)]
struct Billable<'a> {
    provider: Provider,
    dialect: &'static Dialect,
    server: &'a Server,
    arrived: Instant,
}

/// Lets the answer pass through a meter.
fn meter(
    response: Response<Body>,
    dialect: &'static Dialect,
    usage: UsageAsk,
    mut call: Call,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    if usage == UsageAsk::Inject {
        // The answer gets shorter by the chunk that the agent did not ask for.
        parts.headers.remove(CONTENT_LENGTH);
    }
    call.answered(parts.status.as_u16());
    let encoding = parts.headers.get(CONTENT_ENCODING);
    let body = match encoding.and_then(|name| Coding::named(name.as_bytes())) {
        None | Some(Coding::Identity) => body,
        Some(coding) => {
            parts.headers.remove(CONTENT_ENCODING);
            parts.headers.remove(CONTENT_LENGTH);
            decoded(coding, body)
        }
    };
    let meter = Meter::new(dialect, usage, declared(&parts.headers));
    Response::from_parts(parts, Metered::new(body, meter, usage, call).boxed())
}

fn declared(headers: &HeaderMap) -> Declared {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.as_bytes());
    match (text(CONTENT_ENCODING), text(CONTENT_TYPE)) {
        (Some(encoding), _) if !encoding.eq_ignore_ascii_case(b"identity") => Declared::Encoded,
        (_, Some(kind)) if kind.to_ascii_lowercase().starts_with(b"text/event-stream") => {
            Declared::Stream
        }
        _ => Declared::Other,
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
