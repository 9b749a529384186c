//! The authorities that upstream servers are verified against.
//!
//! The host's roots are many and take milliseconds to read, so they are read when the first TLS
//! connection goes out and not at launch. The agent has no way to switch verification off: it is
//! not the agent's connection.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use super::error::DialError;

#[derive(Debug)]
pub(super) struct Trust {
    extra: Vec<CertificateDer<'static>>,
    config: OnceCell<Arc<ClientConfig>>,
}

impl Trust {
    pub(super) fn new(extra: Vec<CertificateDer<'static>>) -> Self {
        Self { extra, config: OnceCell::new() }
    }

    pub(super) async fn config(&self) -> Result<Arc<ClientConfig>, DialError> {
        let loaded = self.config.get_or_try_init(|| async {
            let extra = self.extra.clone();
            spawn_blocking(|| load(extra)).await.unwrap_or(Err(DialError::NoRoots))
        });
        loaded.await.map(Arc::clone)
    }
}

fn load(extra: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, DialError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(extra);
    if roots.is_empty() {
        return Err(DialError::NoRoots);
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(DialError::Certificate)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
