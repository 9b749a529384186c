//! Puts requests to permitted servers, over pooled TLS connections.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use rustls::pki_types::CertificateDer;
use tower_service::Service;

use super::dial::{Dialled, Dialler};
use super::error::{DialError, UpstreamError};
use super::resolve::{Resolve, SystemResolver};
use super::secured::Secured;
use super::trust::Trust;
use crate::body::Body;
use crate::rules::Server;
use crate::tasks::Tasks;

const IDLE_LIMIT: Duration = Duration::from_secs(60);
const MOST_IDLE: usize = 16;

/// What the host's network is to the door.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Servers that are dialled elsewhere; TLS still asks for and verifies the real name. Such an
    /// address is checked like a resolved one.
    pub connect_to: BTreeMap<Server, SocketAddr>,
    /// Private networks that may be dialled at all.
    pub danger_private: Vec<IpNet>,
    /// Authorities that are trusted beside the host's own.
    pub extra_ca: Vec<CertificateDer<'static>>,
    pub resolver: Arc<dyn Resolve>,
}

impl Outside {
    /// The host's own resolver and roots, nothing private.
    #[must_use]
    pub fn public() -> Self {
        Self {
            connect_to: BTreeMap::new(),
            danger_private: Vec::new(),
            extra_ca: Vec::new(),
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}

/// Dials permitted servers from the host's network; one per run; cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    dialler: Arc<Dialler>,
    client: Client<Connector, Body>,
}

impl Upstream {
    #[must_use]
    pub fn new(outside: Outside) -> Self {
        let dialler = Arc::new(Dialler {
            connect_to: outside.connect_to,
            danger_private: outside.danger_private,
            resolver: outside.resolver,
            trust: Trust::new(outside.extra_ca),
        });
        let client = Client::builder(Tasks::default())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(Connector { dialler: Arc::clone(&dialler) });
        Self { dialler, client }
    }

    /// Sends one request to `server` over TLS (pooled HTTP/1.1 or 2 connections).
    ///
    /// Of the request's target only path and query count, and `Host` is written anew; the other
    /// headers are sent as given. What is hop-by-hop is the caller's duty.
    pub async fn send(
        &self,
        server: &Server,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        parts.uri = Uri::builder()
            .scheme("https")
            .authority(server.to_string())
            .path_and_query(target)
            .build()
            .map_err(UpstreamError::Request)?;
        parts.version = Version::HTTP_11;
        parts.headers.remove(HOST);
        Ok(self.client.request(Request::from_parts(parts, body)).await?)
    }

    /// A bare connection to `server`.
    pub(crate) async fn dial_tcp(&self, server: &Server) -> Result<Dialled, DialError> {
        self.dialler.dial(server).await
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("dialler", &self.dialler).finish_non_exhaustive()
    }
}

/// Makes the pool's connections.
#[derive(Debug, Clone)]
struct Connector {
    dialler: Arc<Dialler>,
}

impl Service<Uri> for Connector {
    type Response = Secured;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Secured, DialError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialler = Arc::clone(&self.dialler);
        Box::pin(async move {
            let port = uri.port_u16().unwrap_or(443);
            let name = uri.host().and_then(|host| host.parse().ok()).ok_or(DialError::Name)?;
            let stream = dialler.dial_tls(&Server::new(name, port)).await?;
            Ok(Secured(TokioIo::new(stream)))
        })
    }
}
