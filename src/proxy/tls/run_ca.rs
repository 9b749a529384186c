//! An authority for one run, by which the door can read what goes to inference servers.
//!
//! Its key is made at launch, is never written anywhere and ends with the process. The certificate
//! is name-constrained to the inference servers, so that a jail that trusts it trusts it for
//! nothing else. Leaves are for exactly one name and live for a day.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use crate::rules::ServerName;

/// Clocks inside containers and virtual machines may lag.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// Longer than any run; the authority is worthless after its run anyway.
const CA_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(24);
const LEAF_RENEWAL: SignedDuration = SignedDuration::from_hours(12);
/// A suffix rule can match names without end.
const MOST_LEAVES: usize = 256;

/// The run's authority was not made, or one of its leaves.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    #[error("cannot make a certificate of the run's authority")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot date a certificate of the run's authority")]
    Date(#[from] time::error::ComponentRange),
    #[error("cannot use a certificate of the run's authority")]
    Tls(#[from] rustls::Error),
}

/// The authority of one run.
pub struct RunCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaf_key: KeyPair,
    leaves: Mutex<HashMap<ServerName, Leaf>>,
}

struct Leaf {
    config: Arc<ServerConfig>,
    renewal: Timestamp,
}

impl RunCa {
    /// Makes an authority for `names` and what lies below them.
    pub fn generate(
        names: impl IntoIterator<Item = ServerName>,
        now: Timestamp,
    ) -> Result<Self, CaError> {
        let mut permitted: Vec<_> =
            names.into_iter().map(|name| GeneralSubtree::DnsName(name.to_string())).collect();
        if permitted.is_empty() {
            // An empty list would permit every name.
            permitted.push(GeneralSubtree::DnsName("kvro-jail.invalid".to_owned()));
        }
        let mut params = named("kvro-jail run authority", now, CA_LIFE)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: permitted,
            // Permitted names say nothing about addresses.
            excluded_subtrees: vec![
                GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
                GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
            ],
        });
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
            leaf_key: KeyPair::generate()?,
            leaves: Mutex::default(),
        })
    }

    /// The certificate, for the jail's bundle.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// How to be `name` towards the jail.
    pub(crate) fn server_config(
        &self,
        name: &ServerName,
        now: Timestamp,
    ) -> Result<Arc<ServerConfig>, CaError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get(name).filter(|leaf| now < leaf.renewal) {
            return Ok(Arc::clone(&leaf.config));
        }
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        let config = Arc::new(self.make_leaf(name, now)?);
        let leaf = Leaf { config: Arc::clone(&config), renewal: now + LEAF_RENEWAL };
        leaves.insert(name.clone(), leaf);
        Ok(config)
    }

    fn make_leaf(&self, name: &ServerName, now: Timestamp) -> Result<ServerConfig, CaError> {
        let mut params = named("kvro-jail", now, LEAF_LIFE)?;
        params.subject_alt_names = CertificateParams::new([name.to_string()])?.subject_alt_names;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone(), self.issuer.der().clone()], key)?;
        // Every client of an inference server speaks it, and one protocol is enough to meter.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn named(name: &str, now: Timestamp, life: SignedDuration) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::from_unix_timestamp((now - BACKDATED).as_second())?;
    params.not_after = OffsetDateTime::from_unix_timestamp((now + life).as_second())?;
    Ok(params)
}

impl fmt::Debug for RunCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunCa").finish_non_exhaustive()
    }
}
