//! Carries DNS messages over UDP and TCP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kvro_ledger::{Actor, Recorder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::answer::{Answer, answer};
use super::datagram;
use crate::address_book::AddressBook;
use crate::rules::Rules;

const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// No question is longer; what is cut off makes it malformed.
const DATAGRAM: usize = 4096;

/// What the name server answers from.
#[derive(Debug)]
pub(crate) struct Zone {
    pub(crate) rules: Rules,
    pub(crate) book: Arc<AddressBook>,
    pub(crate) recorder: Recorder,
}

impl Zone {
    fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        let Answer { reply, event } = answer(message, self);
        if let Some(event) = event {
            self.recorder.record(Actor::Proxy, event);
        }
        reply
    }
}

/// Answers datagrams until the socket fails.
pub(crate) async fn serve_udp(socket: UdpSocket, zone: Arc<Zone>) -> io::Error {
    let mut buffer = [0; DATAGRAM];
    loop {
        let (length, way) = match datagram::receive(&socket, &mut buffer).await {
            Ok(received) => received,
            Err(error) if is_passing(&error) => continue,
            Err(error) => return error,
        };
        let Some(reply) = zone.answer(&buffer[..length]) else {
            continue;
        };
        if let Err(error) = datagram::send(&socket, &reply, &way).await {
            tracing::debug!(%error, "a name's answer was not sent");
        }
    }
}

/// An earlier reply met a closed port: about that reply, not about this socket.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

/// Answers one connection's messages until it ends or rests too long.
pub(crate) async fn serve_stream(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    loop {
        let message = match timeout(IDLE_LIMIT, read_message(&mut stream)).await {
            Ok(read) => read?,
            Err(_elapsed) => return Ok(()),
        };
        let Some(reply) = zone.answer(&message) else {
            return Ok(());
        };
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), reply.as_slice()].concat();
        match timeout(IDLE_LIMIT, stream.write_all(&framed)).await {
            Ok(written) => written?,
            Err(_elapsed) => return Ok(()),
        }
    }
}

async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
