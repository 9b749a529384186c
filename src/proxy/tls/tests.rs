use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Error, RootCertStore, ServerConnection,
};

use super::*;
use crate::rules::ServerName;

fn now() -> Timestamp {
    "2026-11-30T16:00:00Z".parse().unwrap()
}

fn name(text: &str) -> ServerName {
    text.parse().unwrap()
}

fn authority(names: &[&str]) -> RunCa {
    RunCa::generate(names.iter().map(|text| name(text)), now()).unwrap()
}

fn trusting(ca: &RunCa) -> Arc<WebPkiServerVerifier> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap()
}

/// The chain that a client is shown by a server that is `leaf`.
fn shown(ca: &RunCa, leaf: &str, at: Timestamp) -> Vec<CertificateDer<'static>> {
    let mut server = ServerConnection::new(ca.server_config(&name(leaf), at).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous))
        .with_no_client_auth();
    let asked = "any.test".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), asked).unwrap();
    while client.peer_certificates().is_none() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    client.peer_certificates().unwrap().iter().cloned().map(CertificateDer::into_owned).collect()
}

fn verify(
    ca: &RunCa,
    chain: &[CertificateDer<'_>],
    asked: &str,
    at: Timestamp,
) -> Result<(), Error> {
    let asked = asked.to_owned().try_into().unwrap();
    let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        u64::try_from(at.as_second()).unwrap(),
    ));
    let (leaf, rest) = chain.split_first().unwrap();
    trusting(ca).verify_server_cert(leaf, rest, &asked, &[], at).map(drop)
}

#[test]
fn a_leaf_is_for_its_name_alone() {
    let ca = authority(&["api.anthropic.com", "openai.com"]);
    let chain = shown(&ca, "api.openai.com", now());
    assert_eq!(verify(&ca, &chain, "api.openai.com", now()), Ok(()));
    for other in ["api.anthropic.com", "openai.com", "x.api.openai.com"] {
        let refused = verify(&ca, &chain, other, now()).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
            ),
            "{other}: {refused:?}"
        );
    }
}

#[test]
fn the_authority_is_trusted_for_inference_servers_alone() {
    for (names, leaf) in [
        (&["api.anthropic.com"][..], "bank.example"),
        (&["api.anthropic.com"], "anthropic.com"),
        (&["api.anthropic.com"], "192.0.2.1"),
        (&[], "bank.example"),
    ] {
        let ca = authority(names);
        let chain = shown(&ca, leaf, now());
        let refused = verify(&ca, &chain, leaf, now()).unwrap_err();
        assert!(format!("{refused:?}").contains("NameConstraintViolation"), "{leaf}: {refused:?}");
    }
}

#[test]
fn one_runs_authority_is_nothing_to_another_run() {
    let (ours, theirs) = (authority(&["api.anthropic.com"]), authority(&["api.anthropic.com"]));
    let chain = shown(&theirs, "api.anthropic.com", now());
    let refused = verify(&ours, &chain, "api.anthropic.com", now()).unwrap_err();
    assert!(matches!(refused, Error::InvalidCertificate(_)), "{refused:?}");
}

#[test]
fn a_leaf_is_kept_for_a_while_and_renewed_before_it_ends() {
    let ca = authority(&["api.anthropic.com"]);
    let later = |hours| now() + SignedDuration::from_hours(hours);
    let first = shown(&ca, "api.anthropic.com", now());
    assert_eq!(shown(&ca, "api.anthropic.com", later(11)), first);
    let second = shown(&ca, "api.anthropic.com", later(13));
    assert_ne!(second[0], first[0]);
    assert_eq!(verify(&ca, &second, "api.anthropic.com", later(36)), Ok(()));
    let late = verify(&ca, &first, "api.anthropic.com", later(25)).unwrap_err();
    assert!(format!("{late:?}").contains("Expired"), "{late:?}");
    let early = now() - SignedDuration::from_mins(59);
    assert_eq!(verify(&ca, &first, "api.anthropic.com", early), Ok(()));
}

/// Looks at what a server shows without judging it.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
