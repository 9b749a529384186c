//! One door with everything around it.
//!
//! A jail's addresses are all local to it; here 127.0.0.0/8 plays that part. The address book pins
//! one loopback address to each name, a listener on every address stands for each port, and the
//! door sees both as it would in a jail.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kvro_ledger::event::{EgressAllowed, EgressClosed};
use kvro_ledger::{Event, MemoryLedger, Recorder};
use kvro_proxy::gate::{Ask, Gate, Patience, Permit, Refusal};
use kvro_proxy::upstream::{Resolve, ResolveError, Resolving};
use kvro_proxy::{AddressBook, Config, Door, Listeners, Outside, Rules, RunCa, Server, ServerName};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

const ALLOWED: [&str; 11] = [
    "allowed.test",
    "other.test",
    "*.wild.test",
    "private.test",
    "metadata.test",
    "missing.test",
    "rebound.test",
    "gone.test",
    "ssh.test:22",
    "api.anthropic.com",
    "api.anthropic.com:22",
];

/// Each name's address, as its last number: 127.0.0.2 is `allowed.test`, and so on.
const ADDRESSES: [(u8, &str); 11] = [
    (2, "allowed.test"),
    (3, "other.test"),
    (4, "denied.test"),
    (5, "private.test"),
    (6, "metadata.test"),
    (7, "missing.test"),
    (8, "rebound.test"),
    (9, "gone.test"),
    (10, "ssh.test"),
    (11, "api.anthropic.com"),
    (12, "secret.wild.test"),
];
/// No name stands for this one.
pub(crate) const NAMELESS: &str = "nameless";

pub(crate) struct World {
    pub(crate) ledger: MemoryLedger,
    pub(crate) book: Arc<AddressBook>,
    pub(crate) authority: Authority,
    pub(crate) run_ca: CertificateDer<'static>,
    /// Where the servers are really reached, by the server that is meant.
    pub(crate) tls: TcpListener,
    pub(crate) http: TcpListener,
    pub(crate) ssh: TcpListener,
    pub(crate) inference: TcpListener,
    pub(crate) rebound: TcpListener,
    pub(crate) dns_udp: SocketAddr,
    pub(crate) dns_tcp: SocketAddr,
    doors: BTreeMap<u16, SocketAddr>,
    _serving: JoinSet<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let authority = Authority::new();
        let [tls, http, ssh, inference, rebound] =
            [bind().await, bind().await, bind().await, bind().await, bind().await];
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let book = Arc::new(AddressBook::default());
        for (last, name) in ADDRESSES {
            book.pin(loopback(last), name.parse().unwrap());
        }
        let connect_to = [
            ("allowed.test:443", at(&tls)),
            ("allowed.test:80", at(&http)),
            ("ssh.test:22", at(&ssh)),
            ("api.anthropic.com:443", at(&inference)),
            // Bound by nobody.
            ("gone.test:443", SocketAddr::from(([127, 0, 0, 1], 1))),
            ("gone.test:80", SocketAddr::from(([127, 0, 0, 1], 1))),
        ];
        let outside = Outside {
            connect_to: connect_to.map(|(server, at)| (server.parse().unwrap(), at)).into(),
            danger_private: vec!["127.0.0.0/8".parse().unwrap()],
            extra_ca: vec![authority.certificate()],
            resolver: Arc::new(Hosts),
        };
        let anthropic: ServerName = "api.anthropic.com".parse().unwrap();
        let ca = RunCa::generate([anthropic], Timestamp::now()).unwrap();
        let run_ca = CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap();
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let config = Config {
            rules: Rules::new(parse(&ALLOWED), parse(&["secret.wild.test"])),
            outside,
            inference: BTreeMap::new(),
            ca,
            address_book: Arc::clone(&book),
        };
        let (listeners, doors, dns_udp, dns_tcp) = listeners();
        let (recorder, ledger) = Recorder::to_memory();
        let door = Door::open(config, listeners, Arc::new(ShutGate), recorder).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async { panic!("the door ended: {:?}", door.serve().await) });
        Self {
            ledger,
            book,
            authority,
            run_ca,
            tls,
            http,
            ssh,
            inference,
            rebound,
            dns_udp,
            dns_tcp,
            doors,
            _serving: serving,
        }
    }

    /// Connects as an agent would that means `name` at `port`.
    pub(crate) async fn connect(&self, name: &str, port: u16) -> TcpStream {
        let last =
            ADDRESSES.iter().find(|(_, known)| *known == name).map_or(200, |(last, _)| *last);
        let door = SocketAddr::new(loopback(last), self.doors[&port].port());
        let stream = TcpStream::connect(door).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Takes up TLS as a client that trusts the authority and the run's own.
    pub(crate) async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: &str,
    ) -> std::io::Result<client::TlsStream<S>> {
        let config = client_config(&[self.authority.certificate(), self.run_ca.clone()]);
        let name = name.to_owned().try_into().unwrap();
        patiently(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
    }

    /// Waits for an event, so that a test need not know how long things take.
    async fn event<T>(&self, pick: impl Fn(&Event) -> Option<T>) -> T {
        let search = async {
            loop {
                if let Some(found) = self.ledger.events().iter().find_map(|(_, event)| pick(event))
                {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, search).await.unwrap_or_else(|_| {
            panic!("no such event among {:#?}", self.ledger.events());
        })
    }

    pub(crate) async fn allowed(&self) -> EgressAllowed {
        self.event(|event| {
            let Event::EgressAllowed(allowed) = event else { return None };
            Some(allowed.clone())
        })
        .await
    }

    pub(crate) async fn closed(&self) -> EgressClosed {
        self.event(|event| {
            let Event::EgressClosed(closed) = event else { return None };
            Some(closed.clone())
        })
        .await
    }

    pub(crate) async fn failed(&self) -> (String, u16, String) {
        self.event(|event| {
            let Event::UpstreamFailed(failed) = event else { return None };
            Some((failed.server.clone(), failed.port, failed.reason.clone()))
        })
        .await
    }

    pub(crate) async fn denied(&self) -> (String, u16, String) {
        self.event(|event| {
            let Event::EgressDenied(denied) = event else { return None };
            Some((denied.server.clone(), denied.port, denied.reason.clone()))
        })
        .await
    }

    /// The names of all events but the first, which says that the door opened.
    pub(crate) fn event_names(&self) -> Vec<String> {
        let name = |event: &Event| {
            serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned()
        };
        self.ledger.events().iter().skip(1).map(|(_, event)| name(event)).collect()
    }

    /// Nobody has dialled any server.
    pub(crate) async fn assert_nothing_left(&self) {
        for listener in [&self.tls, &self.http, &self.ssh, &self.inference, &self.rebound] {
            tokio::select! {
                biased;
                accepted = listener.accept() => panic!("a server was dialled: {accepted:?}"),
                () = std::future::ready(()) => {}
            }
        }
    }
}

/// Far longer than anything here takes, so that what hangs fails and does not hold up the rest.
const PATIENCE: Duration = Duration::from_secs(4);

/// Waits for what has to come; not for tests whose clock runs on by itself.
pub(crate) async fn patiently<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, coming).await.expect("nothing came")
}

fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn listeners() -> (Listeners, BTreeMap<u16, SocketAddr>, SocketAddr, SocketAddr) {
    let mut listeners = Listeners::default();
    let mut doors = BTreeMap::new();
    for port in [80, 443, 22] {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        doors.insert(port, listener.local_addr().unwrap());
        listeners.tcp.push((port, listener));
    }
    let udp = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let own = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), udp.local_addr().unwrap().port());
    let at = (own, tcp.local_addr().unwrap());
    listeners.dns_udp.push(udp);
    listeners.dns_tcp.push(tcp);
    (listeners, doors, at.0, at.1)
}

/// A resolver that knows four names.
#[derive(Debug)]
pub(crate) struct Hosts;

impl Resolve for Hosts {
    fn resolve<'a>(&'a self, name: &'a ServerName) -> Resolving<'a> {
        let addresses: &[IpAddr] = match name.as_str() {
            "private.test" => &[IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))],
            "metadata.test" => &[IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))],
            "rebound.test" => &[
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
                IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
                IpAddr::V4(Ipv4Addr::LOCALHOST),
            ],
            _ => &[],
        };
        let found =
            if addresses.is_empty() { Err(ResolveError::NotFound) } else { Ok(addresses.to_vec()) };
        Box::pin(std::future::ready(found))
    }
}

/// Nothing here is billable.
#[derive(Debug)]
struct ShutGate;

impl Gate for ShutGate {
    fn admit(&self, _: &Ask) -> Result<Permit, Refusal> {
        let message = "no call is expected".to_owned();
        Err(Refusal { limit: "max_turns", used: "0".into(), ceiling: "0".into(), message })
    }

    fn patience(&self) -> Patience {
        Patience::None
    }
}

/// A throw-away authority for the servers outside.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A server for `params`' names that speaks `protocols`.
    pub(crate) fn acceptor(&self, params: &CertificateParams, protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Accepts one connection as `name`.
    pub(crate) async fn accept(
        &self,
        listener: &TcpListener,
        name: &str,
    ) -> server::TlsStream<TcpStream> {
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        self.acceptor(&params, &[]).accept(stream).await.unwrap()
    }
}

pub(crate) fn client_config(trusted: &[CertificateDer<'static>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// What comes in until the end, and how it ended.
pub(crate) async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

pub(crate) fn server(text: &str) -> Server {
    text.parse().unwrap()
}
