//! The agent's way to its model: HTTPS requests one after another, trusting the bundle that it is
//! told to trust.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const SERVER: &str = "api.anthropic.com";

/// A client of the Messages API.
pub(crate) struct Model {
    address: String,
    connector: TlsConnector,
    runtime: Runtime,
    key: String,
}

/// A connection to the model, kept open from turn to turn.
pub(crate) struct Line<'m> {
    model: &'m Model,
    requests: SendRequest<Full<Bytes>>,
    connection: JoinSet<hyper::Result<()>>,
}

impl Model {
    /// A client that finds the API at `address`, which need not be where its name leads.
    pub(crate) fn new(address: &str, bundle: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(bundle)
            .with_context(|| format!("cannot read {}", bundle.display()))?;
        roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (address, connector) = (address.to_owned(), TlsConnector::from(Arc::new(config)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let key = std::env::var("ANTHROPIC_API_KEY").unwrap_or_default();
        Ok(Self { address, connector, runtime, key })
    }

    pub(crate) fn dial(&self) -> anyhow::Result<Line<'_>> {
        self.runtime.block_on(async {
            let socket = TcpStream::connect(&self.address).await.context("no connection")?;
            socket.set_nodelay(true)?;
            let socket = self
                .connector
                .connect(ServerName::try_from(SERVER)?, socket)
                .await
                .context("no TLS")?;
            let (requests, served) =
                hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
            let mut connection = JoinSet::new();
            connection.spawn(served);
            Ok(Line { model: self, requests, connection })
        })
    }
}

impl Line<'_> {
    /// One turn: what the model said, or the status and the words of a refusal.
    pub(crate) fn ask(&mut self, prompt: &str) -> anyhow::Result<String> {
        let body = json!({
            "model": "claude-opus-5-5",
            "max_tokens": 1_024,
            "messages": [{"role": "user", "content": prompt}],
        });
        let request = Request::post("/v1/messages")
            .header("host", SERVER)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", &self.model.key)
            .body(Full::new(Bytes::from(body.to_string())))?;
        let (status, body) = self.model.runtime.block_on(async {
            self.requests.ready().await?;
            let response = self.requests.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok((status, body))
        })?;
        let body: Value = serde_json::from_slice(&body).context("no JSON")?;
        let words = body["content"][0]["text"].as_str().or(body["error"]["message"].as_str());
        Ok(format!("{} {}", status.as_u16(), words.unwrap_or_default()))
    }

    /// Ends the connection in good order.
    pub(crate) fn hang_up(self) -> anyhow::Result<()> {
        let Self { model, requests, mut connection } = self;
        drop(requests);
        while let Some(ended) = model.runtime.block_on(connection.join_next()) {
            ended??;
        }
        Ok(())
    }
}
