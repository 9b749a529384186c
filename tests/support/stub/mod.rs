//! A stand-in provider: what a test or the quickstart puts where a real inference server would be.
//!
//! It speaks the Anthropic Messages API and the OpenAI Responses and Chat Completions APIs (JSON
//! and SSE) over TLS, with a throw-away authority made when it starts, and a plain page for every
//! name that is not an API. It keeps its own count of what it sent, so that a test can hold the
//! ledger against a witness that shares no code with the meter. It checks no key, knows no prices
//! and listens on loopback only.

mod answer;
mod anthropic;
mod ask;
mod authority;
mod chat;
mod gemini;
mod responses;
mod serve;
mod settings;
mod tally;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use anyhow::Context as _;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use settings::Mode;
pub(crate) use settings::Settings;
pub(crate) use tally::{Totals, Usage};

/// A running stub; dropping it closes its ports.
#[derive(Debug)]
pub(crate) struct Stub {
    ready: Ready,
    tally: tally::Tally,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
}

/// Where a stub listens, always on 127.0.0.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Ready {
    /// TLS, HTTP/1.1 and 2, any server name.
    pub(crate) tls: u16,
    /// The same without TLS.
    pub(crate) http: u16,
    /// Plain HTTP with `GET /__totals`.
    pub(crate) control: u16,
    /// The throw-away authority's certificate.
    pub(crate) ca: PathBuf,
    /// One JSON line for each request.
    pub(crate) log: PathBuf,
}

impl Stub {
    /// Binds three free ports, writes `ca.pem` and starts to answer on a thread of its own.
    pub(crate) fn start(settings: Settings) -> anyhow::Result<Self> {
        let authority = authority::Authority::generate()?;
        let ca = settings.directory.join("ca.pem");
        std::fs::write(&ca, authority.certificate_pem())
            .with_context(|| format!("cannot write {}", ca.display()))?;
        let log = settings.directory.join("requests.jsonl");
        let tally = tally::Tally::create(&log)?;

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bind = || runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let doors = serve::Doors { tls: bind()?, http: bind()?, control: bind()? };
        let ready = Ready {
            tls: port(doors.tls.local_addr()?),
            http: port(doors.http.local_addr()?),
            control: port(doors.control.local_addr()?),
            ca,
            log,
        };

        let acceptor = authority.acceptor();
        let provider = serve::Provider::new(settings, tally.clone());
        let (stop, stopped) = oneshot::channel();
        let server = thread::Builder::new()
            .name("stub-provider".to_owned())
            .spawn(move || runtime.block_on(serve::serve(doors, acceptor, provider, stopped)))?;
        Ok(Self { ready, tally, stop: Some(stop), server: Some(server) })
    }

    pub(crate) fn ready(&self) -> &Ready {
        &self.ready
    }

    /// What was accepted and sent so far.
    pub(crate) fn totals(&self) -> Totals {
        self.tally.totals()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        // Dropping the sender is the signal; a server that already ended needs none.
        drop(self.stop.take());
        if let Some(server) = self.server.take() {
            // A panic in there was printed by its own thread.
            drop(server.join());
        }
    }
}

fn port(address: SocketAddr) -> u16 {
    address.port()
}
