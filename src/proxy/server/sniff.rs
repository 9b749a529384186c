//! Reads just enough of a connection to know what it speaks and, for TLS, which server it names.
//!
//! Why rustls reads the ClientHello and not a parser of our own: a hello may be spread over many
//! records and segments and carries much that is easy to misread, and the agent chooses its bytes.

use std::io;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// From the connection to its whole first message.
const LIMIT: Duration = Duration::from_secs(10);
/// More than any real hello, post-quantum key shares and all.
const LONGEST_HELLO: usize = 64 * 1024;
const LONGEST_METHOD: usize = 32;
const TLS_HANDSHAKE: u8 = 22;

/// What a connection opens with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// A ClientHello, with the name that it asks for.
    Tls(Option<String>),
    /// TLS that cannot be read.
    BrokenTls,
    /// Starts like an HTTP/1 request.
    Http,
    Unknown,
    /// Closed before it said anything that could be judged.
    Closed,
    TooSlow,
}

/// An opening and all bytes that were read for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sniffed {
    pub(super) opening: Opening,
    pub(super) bytes: Vec<u8>,
}

pub(super) async fn sniff(stream: &mut (impl AsyncRead + Unpin)) -> Sniffed {
    let mut bytes = Vec::new();
    let opening = match timeout(LIMIT, read_opening(stream, &mut bytes)).await {
        Ok(Ok(opening)) => opening,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection ended before it could be judged");
            Opening::Closed
        }
        Err(_elapsed) => Opening::TooSlow,
    };
    Sniffed { opening, bytes }
}

async fn read_opening(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
) -> io::Result<Opening> {
    let mut hello = Acceptor::default();
    let mut fed = 0;
    while stream.read_buf(bytes).await? > 0 {
        let known = if bytes.first() == Some(&TLS_HANDSHAKE) {
            let known = feed(&mut hello, &bytes[fed..]);
            fed = bytes.len();
            known.or_else(|| (fed > LONGEST_HELLO).then_some(Opening::BrokenTls))
        } else {
            plain(bytes)
        };
        if let Some(opening) = known {
            return Ok(opening);
        }
    }
    Ok(Opening::Closed)
}

/// Takes a piece of the hello; says what it is once it is whole.
fn feed(hello: &mut Acceptor, mut piece: &[u8]) -> Option<Opening> {
    while !piece.is_empty() {
        if hello.read_tls(&mut piece).is_err() {
            return Some(Opening::BrokenTls);
        }
        match hello.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                return Some(Opening::Tls(name));
            }
            Err(_) => return Some(Opening::BrokenTls),
        }
    }
    None
}

/// A method is a token (RFC 9110) and a space.
fn plain(bytes: &[u8]) -> Option<Opening> {
    let token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    let method = bytes.iter().take_while(|b| token(b)).count();
    match bytes.get(method) {
        Some(b' ') if (1..=LONGEST_METHOD).contains(&method) => Some(Opening::Http),
        Some(_) => Some(Opening::Unknown),
        None => (method > LONGEST_METHOD).then_some(Opening::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use rustls::client::ClientConnection;
    use rustls::crypto::ring;
    use rustls::{ClientConfig, RootCertStore};

    fn hello(name: &str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    async fn opening(bytes: &[u8]) -> Opening {
        sniff(&mut &*bytes).await.opening
    }

    /// One byte a record, as RFC 8446 section 5.1 allows.
    fn in_tiny_records(hello: &[u8]) -> Vec<u8> {
        hello[5..].iter().flat_map(|&byte| [22, 3, 1, 0, 1, byte]).collect()
    }

    #[tokio::test]
    async fn a_hello_names_its_server_however_it_is_cut() {
        let whole = hello("api.example.com");
        let expected = Opening::Tls(Some("api.example.com".to_owned()));
        assert_eq!(opening(&whole).await, expected);
        assert_eq!(opening(&in_tiny_records(&whole)).await, expected);
        for piece in [1, 2, 7] {
            let mut acceptor = Acceptor::default();
            let read = whole.chunks(piece).find_map(|chunk| feed(&mut acceptor, chunk));
            assert_eq!(read.as_ref(), Some(&expected), "in pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_hello_to_an_address_names_nobody() {
        assert_eq!(opening(&hello("192.0.2.1")).await, Opening::Tls(None));
    }

    #[tokio::test]
    async fn what_was_read_is_kept_to_the_byte() {
        let mut bytes = hello("api.example.com");
        bytes.extend_from_slice(b"early");
        let mut rest = bytes.as_slice();
        let sniffed = sniff(&mut rest).await;
        assert_eq!([&sniffed.bytes, rest].concat(), bytes);
    }

    #[tokio::test]
    async fn every_opening_is_told_apart() {
        let endless = [&[22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff][..], &[0; 0x1_8000]].concat();
        let table: [(&[u8], Opening); 12] = [
            (b"GET / HTTP/1.1\r\n", Opening::Http),
            (b"M-SEARCH * HTTP/1.1\r\n", Opening::Http),
            (b"PRI * HTTP/2.0\r\n", Opening::Http),
            (b"SSH-2.0-OpenSSH_9\r\n", Opening::Unknown),
            (b"\x05\x01\x00", Opening::Unknown),
            (b" GET", Opening::Unknown),
            (b"\0", Opening::Unknown),
            (b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Opening::Unknown),
            (b"", Opening::Closed),
            (b"GE", Opening::Closed),
            (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", Opening::BrokenTls),
            (&endless, Opening::BrokenTls),
        ];
        for (bytes, expected) in table {
            assert_eq!(opening(bytes).await, expected, "{:?}", &bytes[..bytes.len().min(40)]);
        }
    }
}
