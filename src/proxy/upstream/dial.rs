//! Dials permitted servers: resolve, check, connect, and only to what was checked.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rustls::pki_types;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{self, Reach};
use super::error::DialError;
use super::resolve::{Resolve, ResolveError};
use super::trust::Trust;
use crate::rules::Server;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// A connection to a permitted server.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Dialler {
    pub(super) connect_to: BTreeMap<Server, SocketAddr>,
    pub(super) danger_private: Vec<IpNet>,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) trust: Trust,
}

impl Dialler {
    /// Tries the server's permitted addresses in turn.
    pub(super) async fn dial(&self, server: &Server) -> Result<Dialled, DialError> {
        let mut last = DialError::Resolve(ResolveError::NotFound);
        for address in self.permitted(server).await? {
            match connect(address).await {
                Ok(stream) => {
                    return Ok(Dialled { stream, peer: address });
                }
                Err(cause) => last = DialError::Connect { address, cause: Arc::new(cause) },
            }
        }
        Err(last)
    }

    /// Dials, and takes up TLS with the server under its real name, also where `connect_to` leads
    /// elsewhere.
    pub(super) async fn dial_tls(
        &self,
        server: &Server,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let name = pki_types::ServerName::try_from(server.name.as_str().to_owned())
            .map_err(|_invalid| DialError::Name)?;
        let config = self.trust.config().await?;
        let Dialled { stream, .. } = self.dial(server).await?;
        let shaken = timeout(HANDSHAKE_LIMIT, TlsConnector::from(config).connect(name, stream));
        shaken.await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into())).map_err(
            |error| match rejected_certificate(&error) {
                Some(cause) => DialError::Certificate(cause),
                None => DialError::Handshake(Arc::new(error)),
            },
        )
    }

    /// The addresses that may be dialled. One refused address does not spoil the others, but what
    /// is returned is what was checked: nothing resolves the name a second time.
    async fn permitted(&self, server: &Server) -> Result<Vec<SocketAddr>, DialError> {
        let mut refused = None;
        let mut permitted = self.candidates(server).await?;
        permitted.retain(|candidate| {
            let ip = candidate.ip();
            match address::check(ip, &self.danger_private) {
                Reach::Public => return true,
                Reach::Private => refused = refused.take().or(Some(DialError::Private(ip))),
                Reach::Metadata => refused = Some(DialError::Metadata(ip)),
            }
            false
        });
        match refused {
            Some(refusal) if permitted.is_empty() => Err(refusal),
            Some(_) | None => Ok(permitted),
        }
    }

    async fn candidates(&self, server: &Server) -> Result<Vec<SocketAddr>, DialError> {
        if let Some(&elsewhere) = self.connect_to.get(server) {
            return Ok(vec![elsewhere]);
        }
        if let Some(address) = server.name.address() {
            return Ok(vec![SocketAddr::new(address, server.port)]);
        }
        let addresses = self.resolver.resolve(&server.name).await?;
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, server.port)).collect())
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_LIMIT, TcpStream::connect(address))
        .await
        .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn rejected_certificate(error: &io::Error) -> Option<rustls::Error> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    matches!(
        cause,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::UnsupportedNameType
    )
    .then(|| cause.clone())
}
