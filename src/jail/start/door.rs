//! The door's configuration, from the policy's words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use kvro_proxy::inference::servers;
use kvro_proxy::{AddressBook, Config, Outside, RunCa, Server, ServerName};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::policy::{NetMode, NetRules};

/// Authorities that the policy adds.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtraCa {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// The same as they were read, for the jail's bundle.
    pub(super) pem: Vec<u8>,
}

impl ExtraCa {
    pub(super) fn read(net: &NetRules) -> anyhow::Result<Self> {
        let mut extra = Self::default();
        for entry in &net.extra_ca {
            let path = entry.value.display();
            let pem = std::fs::read(&entry.value)
                .with_context(|| format!("cannot read the authority {path} of net.extra_ca"))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                extra.certificates.push(
                    certificate.with_context(|| format!("{path} holds no certificate in PEM"))?,
                );
            }
            extra.pem.extend_from_slice(&pem);
            extra.pem.push(b'\n');
        }
        Ok(extra)
    }
}

/// The ports that the door serves: those of the rules, and those that the policy adds.
pub(super) fn ports(net: &NetRules) -> Vec<u16> {
    if net.mode == NetMode::Closed {
        return Vec::new();
    }
    let listed = net.ports.iter().map(|entry| entry.value);
    let ports: BTreeSet<u16> = net.rules().ports().into_iter().chain(listed).collect();
    ports.into_iter().collect()
}

/// The authority of a run, for the servers whose connections end at the door.
pub(super) fn authority(net: &NetRules, now: jiff::Timestamp) -> anyhow::Result<RunCa> {
    let known = servers().filter_map(|name| name.parse::<ServerName>().ok());
    let mapped = net.inference.iter().map(|entry| entry.value.server.clone());
    RunCa::generate(known.chain(mapped), now).context("cannot make the run's authority")
}

/// Everything that the door needs to know.
pub(super) fn config(
    net: &NetRules,
    extra: ExtraCa,
    ca: RunCa,
    book: Arc<AddressBook>,
) -> anyhow::Result<Config> {
    let mut connect_to: BTreeMap<Server, SocketAddr> = BTreeMap::new();
    for entry in &net.connect_to {
        let redirect = &entry.value;
        let address = redirect.to.name.address().with_context(|| {
            format!("net.connect_to dials an address, and `{}` is a name", redirect.to)
        })?;
        connect_to.insert(redirect.from.clone(), SocketAddr::new(address, redirect.to.port));
    }
    let inference = net.inference.iter();
    Ok(Config {
        rules: net.rules(),
        outside: Outside {
            connect_to,
            danger_private: net.danger_private.iter().map(|entry| entry.value).collect(),
            extra_ca: extra.certificates,
            ..Outside::public()
        },
        inference: inference.map(|e| (e.value.server.clone(), e.value.provider)).collect(),
        ca,
        address_book: book,
    })
}
