//! The throw-away authority: one key made at the start, a certificate for whatever name is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

/// Signs a certificate for each server name as it is first asked for.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    issued: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Authority {
    pub(crate) fn generate() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "stub provider's throw-away authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer, issued: Mutex::default() })
    }

    pub(crate) fn certificate_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Accepts TLS for any name, HTTP/2 before HTTP/1.1 as real providers do.
    pub(crate) fn acceptor(self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions();
        // The provider's own cipher suites serve its own default versions.
        let Ok(versions) = versions else { unreachable!("default versions without a cipher") };
        let mut config = versions.with_no_client_auth().with_cert_resolver(Arc::new(self));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    fn issue(&self, name: &str) -> anyhow::Result<Arc<CertifiedKey>> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = issued.get(name) {
            return Ok(Arc::clone(known));
        }
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let signer = rustls::crypto::ring::sign::any_supported_type(&private)
            .context("cannot use a key that was just made")?;
        let chain = vec![certificate.der().clone(), self.issuer.der().clone()];
        let fresh = Arc::new(CertifiedKey::new(chain, signer));
        issued.insert(name.to_owned(), Arc::clone(&fresh));
        Ok(fresh)
    }
}

impl ResolvesServerCert for Authority {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that dials the address names no server.
        self.issue(hello.server_name().unwrap_or("127.0.0.1")).ok()
    }
}
