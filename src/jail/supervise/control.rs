//! The control socket of a run: `ps` and `kill` from outside.
//!
//! It lies in the run's own directory, which only the user can enter and no jail shows. One line of
//! JSON asks, one answers.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

const NAME: &str = "control";
const MAX_LINE: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(2);

/// What is asked of a running supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    Status,
    Kill,
}

/// Its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Status(Status),
    Killing,
}

/// A run that is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub run: String,
    pub pid: u32,
    pub command: Vec<String>,
    pub workspace: String,
    /// RFC 3339.
    pub started: String,
    pub turns: u64,
    /// A decimal string, or `unknown`.
    pub cost_usd: String,
}

/// Why a run does not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("the run is not alive")]
    NotAlive(#[source] io::Error),
    #[error("the run does not answer")]
    NoAnswer(#[source] io::Error),
    #[error("the run's answer cannot be read")]
    Garbled(#[source] serde_json::Error),
}

/// Asks the supervisor of the run in `dir`.
pub fn ask(dir: &Path, request: Request) -> Result<Answer, ControlError> {
    let near = near(dir).map_err(ControlError::NotAlive)?;
    let mut stream = UnixStream::connect(near.path()).map_err(ControlError::NotAlive)?;
    let exchange = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_string(&request)?;
        line.push('\n');
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(io::Read::take(&mut *stream, MAX_LINE)).read_line(&mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    let answer = exchange(&mut stream).map_err(ControlError::NoAnswer)?;
    serde_json::from_str(&answer).map_err(ControlError::Garbled)
}

/// A short name for a socket: an address holds 107 bytes, and state directories can lie deep.
#[derive(Debug)]
struct Near {
    directory: std::fs::File,
}

fn near(dir: &Path) -> io::Result<Near> {
    Ok(Near { directory: std::fs::File::open(dir)? })
}

impl Near {
    fn path(&self) -> String {
        format!("/proc/self/fd/{}/{NAME}", self.directory.as_raw_fd())
    }
}

/// The supervisor's end.
#[derive(Debug)]
pub(super) struct Control {
    listener: UnixListener,
    near: Near,
}

impl Drop for Control {
    fn drop(&mut self) {
        // A socket that stays behind answers nobody.
        drop(std::fs::remove_file(self.near.path()));
    }
}

impl Control {
    /// Listens in the run's directory `dir`.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let near = near(dir)?;
        Ok(Self { listener: UnixListener::bind(near.path())?, near })
    }

    /// Answers for ever, one after the other: with what `status` says, and by calling `kill`.
    ///
    /// Whoever is slow, garbled or somebody else is dropped without an answer.
    pub(super) async fn serve(self, status: impl Fn() -> Status, kill: impl Fn()) -> Infallible {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of descriptors: what the jail does must not be answered with a busy loop.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let exchange = tokio::time::timeout(PATIENCE, answer(stream, &status));
            if let Ok(Some(Request::Kill)) = exchange.await {
                kill();
            }
        }
    }
}

async fn answer(stream: tokio::net::UnixStream, status: impl Fn() -> Status) -> Option<Request> {
    let peer = stream.peer_cred().ok()?;
    let own = nix::unistd::geteuid().as_raw();
    if peer.uid() != own && peer.uid() != 0 {
        return None;
    }
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(reader.take(MAX_LINE)).read_line(&mut line).await.ok()?;
    let request: Request = serde_json::from_str(&line).ok()?;
    let answer = match request {
        Request::Status => Answer::Status(status()),
        Request::Kill => Answer::Killing,
    };
    let mut text = serde_json::to_string(&answer).ok()?;
    text.push('\n');
    writer.write_all(text.as_bytes()).await.ok()?;
    Some(request)
}
