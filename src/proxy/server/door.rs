//! The door itself: its listeners, how many it serves at once, and how it ends.

use std::convert::Infallible;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kvro_ledger::event::{DoorFailed, DoorOpened};
use kvro_ledger::{Actor, Event, Recorder};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection::{self, Shared};
use crate::config::Config;
use crate::dns::{Zone, learn_destinations, serve_stream, serve_udp};
use crate::gate::Gate;
use crate::inference::Exchange;
use crate::upstream::Upstream;

/// Connections served at once; more wait in the kernel's queues.
const MOST_CONNECTIONS: usize = 1024;
/// Out of descriptors or memory: let running connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Sockets that were made where the agent lives.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Each with the port that it stands for. In a jail that is its own; a test may listen
    /// elsewhere.
    pub tcp: Vec<(u16, TcpListener)>,
    pub dns_udp: Vec<UdpSocket>,
    pub dns_tcp: Vec<TcpListener>,
}

/// The door cannot open or cannot go on. The run has to end: without its door it is no jail with a
/// door but one without.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    #[error("cannot use the listener for port {port}")]
    Listener {
        port: u16,
        #[source]
        cause: io::Error,
    },
    #[error("cannot accept on port {port}")]
    Accept {
        port: u16,
        #[source]
        cause: io::Error,
    },
    #[error("cannot answer names")]
    Names(#[source] io::Error),
    #[error("a listener's task ended")]
    Task(#[source] tokio::task::JoinError),
}

/// A door that is ready to serve.
#[derive(Debug)]
pub struct Door {
    shared: Arc<Shared>,
    zone: Arc<Zone>,
    listeners: Listeners,
}

const DNS_PORT: u16 = 53;

impl Door {
    /// Takes over the listeners. Needs no runtime yet.
    pub fn open(
        config: Config,
        listeners: Listeners,
        gate: Arc<dyn Gate>,
        recorder: Recorder,
    ) -> Result<Self, DoorError> {
        for (port, listener) in &listeners.tcp {
            ready(*port, listener.set_nonblocking(true))?;
        }
        for listener in &listeners.dns_tcp {
            ready(DNS_PORT, listener.set_nonblocking(true))?;
        }
        for socket in &listeners.dns_udp {
            ready(DNS_PORT, socket.set_nonblocking(true))?;
            ready(DNS_PORT, learn_destinations(socket))?;
        }
        let zone = Arc::new(Zone {
            rules: config.rules.clone(),
            book: Arc::clone(&config.address_book),
            recorder: recorder.clone(),
        });
        let upstream = Upstream::new(config.outside.clone());
        let exchange =
            Exchange::new(upstream.clone(), gate, recorder.clone(), config.inference.clone());
        let connections = AtomicU64::new(0);
        let shared = Arc::new(Shared { config, upstream, exchange, recorder, connections });
        Ok(Self { shared, zone, listeners })
    }

    /// Serves until something fails or the future is dropped, which ends every connection.
    pub async fn serve(self) -> Result<Infallible, DoorError> {
        let recorder = self.shared.recorder.clone();
        let ended = self.run().await;
        if let Err(error) = &ended {
            let reason = error.to_string();
            recorder.record(Actor::Proxy, Event::DoorFailed(DoorFailed { reason }));
        }
        ended
    }

    async fn run(self) -> Result<Infallible, DoorError> {
        let Self { shared, zone, listeners } = self;
        let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut loops = JoinSet::new();
        let opened = DoorOpened {
            ports: listeners.tcp.iter().map(|(port, _)| *port).collect(),
            dns: !listeners.dns_udp.is_empty(),
        };
        for (port, listener) in listeners.tcp {
            let (shared, permits) = (Arc::clone(&shared), Arc::clone(&permits));
            let listener = ready(port, tokio::net::TcpListener::from_std(listener))?;
            loops.spawn(accept(listener, port, permits, move |stream| {
                connection::serve(Arc::clone(&shared), stream, port)
            }));
        }
        for listener in listeners.dns_tcp {
            let (zone, permits) = (Arc::clone(&zone), Arc::clone(&permits));
            let listener = ready(DNS_PORT, tokio::net::TcpListener::from_std(listener))?;
            loops.spawn(accept(listener, DNS_PORT, permits, move |stream| {
                let zone = Arc::clone(&zone);
                async move {
                    if let Err(error) = serve_stream(stream, &zone).await {
                        tracing::debug!(%error, "a connection for names ended early");
                    }
                }
            }));
        }
        for socket in listeners.dns_udp {
            let socket = ready(DNS_PORT, tokio::net::UdpSocket::from_std(socket))?;
            let zone = Arc::clone(&zone);
            loops.spawn(async { DoorError::Names(serve_udp(socket, zone).await) });
        }
        shared.recorder.record(Actor::Proxy, Event::DoorOpened(opened));
        match loops.join_next().await {
            Some(Ok(error)) => Err(error),
            Some(Err(error)) => Err(DoorError::Task(error)),
            // A door without a listener: nothing can come.
            None => std::future::pending().await,
        }
    }
}

fn ready<T>(port: u16, made: io::Result<T>) -> Result<T, DoorError> {
    made.map_err(|cause| DoorError::Listener { port, cause })
}

/// Accepts until the listener fails; the connections end with it.
async fn accept<F>(
    listener: tokio::net::TcpListener,
    port: u16,
    permits: Arc<Semaphore>,
    serve: impl Fn(TcpStream) -> F,
) -> DoorError
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            Ok(permit) = Arc::clone(&permits).acquire_owned() => permit,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                log_panic(ended);
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => {
                let served = serve(stream);
                connections.spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            Err(cause) if is_broken(&cause) => return DoorError::Accept { port, cause },
            Err(error) => {
                tracing::warn!(port, %error, "a connection was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether the listener itself is no good, other than a passing want or one peer's failure.
fn is_broken(error: &io::Error) -> bool {
    const EBADF: i32 = 9;
    const ENOTSOCK: i32 = 88;
    const EOPNOTSUPP: i32 = 95;
    error.kind() == io::ErrorKind::InvalidInput
        || matches!(error.raw_os_error(), Some(EBADF | ENOTSOCK | EOPNOTSUPP))
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task ended");
    }
}
