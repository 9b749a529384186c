//! The agent's way to its model: one HTTPS request after another, trusting what the environment
//! tells it to trust.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

const SERVER: &str = "api.anthropic.com";

/// A client of the Messages API.
pub(crate) struct Model {
    connector: TlsConnector,
    runtime: Runtime,
    key: String,
}

impl Model {
    pub(crate) fn new(bundle: &Path) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(bundle)
            .with_context(|| format!("cannot read {}", bundle.display()))?;
        roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let key = std::env::var("ANTHROPIC_API_KEY").unwrap_or_default();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), runtime, key })
    }

    /// One turn: what the model said, or the status and the words of a refusal.
    pub(crate) fn ask(&self, prompt: &str) -> anyhow::Result<String> {
        self.runtime.block_on(self.send(prompt))
    }

    async fn send(&self, prompt: &str) -> anyhow::Result<String> {
        let socket = TcpStream::connect((SERVER, 443)).await.context("no connection")?;
        let socket = self
            .connector
            .connect(ServerName::try_from(SERVER)?, socket)
            .await
            .context("no TLS")?;
        let (mut requests, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let body = json!({
            "model": "claude-opus-5-5",
            "max_tokens": 1_024,
            "messages": [{"role": "user", "content": prompt}],
        });
        let request = Request::post("/v1/messages")
            .header("host", SERVER)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", &self.key)
            .body(Full::new(Bytes::from(body.to_string())))?;
        let answer = async {
            let response = requests.send_request(request).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            // Ends the connection, and so the other half of the join.
            drop(requests);
            anyhow::Ok((status, body))
        };
        let ((status, body), ()) =
            tokio::try_join!(answer, async { connection.await.map_err(anyhow::Error::from) })?;
        let body: Value = serde_json::from_slice(&body).context("no JSON")?;
        let words = body["content"][0]["text"].as_str().or(body["error"]["message"].as_str());
        Ok(format!("{} {}", status.as_u16(), words.unwrap_or_default()))
    }
}
