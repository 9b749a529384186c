//! TLS that the door passes on without reading it, and bytes on listed ports.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use kvro_ledger::event::{EgressAllowed, Via};
use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::world::{NAMELESS, World, read_to_end};

const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

#[tokio::test]
async fn a_tunnel_passes_every_byte_and_closes() {
    let world = World::new().await;
    let peer = world.tls.local_addr().unwrap().to_string();
    let sent: Vec<u8> = (0..10 * 1024 * 1024_u32).map(|i| (i % 251) as u8).collect();
    let upstream = async {
        let mut stream = world.authority.accept(&world.tls, "allowed.test").await;
        let received = read_to_end(&mut stream).await.unwrap();
        stream.write_all(&received).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let agent = async {
        let stream = world.connect("allowed.test", 443).await;
        let stream = world.shake(stream, "allowed.test").await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut reader).await.unwrap(), sent);
    };
    tokio::join!(upstream, agent);
    assert_eq!(
        world.allowed().await,
        EgressAllowed {
            connection: 1,
            server: "allowed.test".to_owned(),
            port: 443,
            peer,
            via: Via::Tunnel,
            rule: "allowed.test".to_owned(),
        }
    );
    let closed = world.closed().await;
    assert_eq!(closed.connection, 1);
    assert!(closed.bytes_sent > sent.len() as u64, "{closed:?}");
    assert!(closed.bytes_received > sent.len() as u64, "{closed:?}");
}

#[tokio::test]
async fn a_handshake_that_drips_in_by_single_bytes_is_read() {
    let world = World::new().await;
    let upstream = async {
        let mut stream = world.authority.accept(&world.tls, "allowed.test").await;
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let agent = async {
        let stream = Drip(world.connect("allowed.test", 443).await);
        let mut stream = world.shake(stream, "allowed.test").await.unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"hello");
    };
    tokio::join!(upstream, agent);
}

/// Writes one byte at a time.
struct Drip(TcpStream);

impl AsyncRead for Drip {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Drip {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, &buf[..buf.len().min(1)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_handshake_that_asks_for_what_is_not_allowed_is_refused() {
    let table = [
        ("allowed.test", "other.test", "other.test", "sni_mismatch"),
        ("allowed.test", "denied.test", "denied.test", "sni_mismatch"),
        ("allowed.test", "192.0.2.1", "allowed.test", "sni_missing"),
        ("denied.test", "denied.test", "denied.test", "host_not_listed"),
        ("denied.test", "allowed.test", "allowed.test", "host_not_listed"),
        ("secret.wild.test", "secret.wild.test", "secret.wild.test", "host_denied"),
        ("ssh.test", "ssh.test", "ssh.test", "port_not_listed"),
        (NAMELESS, "allowed.test", "allowed.test", "address_without_name"),
        (NAMELESS, "192.0.2.1", "127.0.0.200", "address_without_name"),
        ("api.anthropic.com", "allowed.test", "allowed.test", "sni_mismatch"),
    ];
    for (address, sni, recorded, reason) in table {
        let world = World::new().await;
        let stream = world.connect(address, 443).await;
        let error = world.shake(stream, sni).await.unwrap_err();
        let alert = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        assert_eq!(
            alert,
            Some(&rustls::Error::AlertReceived(AlertDescription::AccessDenied)),
            "{address} {sni}"
        );
        let expected = (recorded.to_owned(), 443, reason.to_owned());
        assert_eq!(world.denied().await, expected, "{address} {sni}");
        assert_eq!(world.event_names(), ["egress.denied"], "{address} {sni}");
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn what_is_neither_tls_nor_http_does_not_pass_on_a_web_port() {
    for bytes in [&b"SSH-2.0-OpenSSH_9.9\r\n"[..], b"\x05\x01\x00", b"\0\0\0\0"] {
        let world = World::new().await;
        let mut stream = world.connect("allowed.test", 443).await;
        stream.write_all(bytes).await.unwrap();
        let end = stream.read_u8().await.unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        let expected = ("allowed.test".to_owned(), 443, "protocol_unknown".to_owned());
        assert_eq!(world.denied().await, expected);
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn tls_that_cannot_be_read_is_refused_by_an_alert() {
    let world = World::new().await;
    let mut stream = world.connect("allowed.test", 443).await;
    stream.write_all(b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00").await.unwrap();
    assert_eq!(read_to_end(&mut stream).await.unwrap(), [21, 3, 3, 0, 2, 2, 50]);
    let expected = ("allowed.test".to_owned(), 443, "protocol_unknown".to_owned());
    assert_eq!(world.denied().await, expected);
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_server_on_a_listed_port_may_speak_first() {
    let world = World::new().await;
    let upstream = async {
        let (mut stream, _) = world.ssh.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-server\r\n").await.unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"SSH-2.0-client\r\n");
    };
    let agent = async {
        let mut stream = world.connect("ssh.test", 22).await;
        let mut banner = [0; 16];
        stream.read_exact(&mut banner).await.unwrap();
        assert_eq!(&banner, b"SSH-2.0-server\r\n");
        stream.write_all(b"SSH-2.0-client\r\n").await.unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"");
    };
    tokio::join!(upstream, agent);
    let closed = world.closed().await;
    assert_eq!((closed.bytes_sent, closed.bytes_received), (16, 16));
}

#[tokio::test]
async fn the_end_of_one_direction_leaves_the_other_open() {
    let world = World::new().await;
    let upstream = async {
        let (mut stream, _) = world.ssh.accept().await.unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"question");
        stream.write_all(b"answer").await.unwrap();
    };
    let agent = async {
        let mut stream = world.connect("ssh.test", 22).await;
        stream.write_all(b"question").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"answer");
    };
    tokio::join!(upstream, agent);
}

#[tokio::test]
async fn what_breaks_outside_breaks_inside() {
    let world = World::new().await;
    let mut agent = world.connect("ssh.test", 22).await;
    let (mut stream, _) = world.ssh.accept().await.unwrap();
    stream.write_all(b"half").await.unwrap();
    let mut half = [0; 4];
    agent.read_exact(&mut half).await.unwrap();
    stream.set_zero_linger().unwrap();
    drop(stream);
    assert_eq!(agent.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.closed().await.bytes_received, 4);
}

#[tokio::test]
async fn a_name_that_leads_to_a_private_address_is_not_dialled() {
    for (name, reason) in [
        ("private.test", "address_private"),
        ("metadata.test", "address_metadata"),
        ("missing.test", "name_not_found"),
        ("gone.test", "unreachable"),
    ] {
        let world = World::new().await;
        let stream = world.connect(name, 443).await;
        let error = world.shake(stream, name).await.unwrap_err();
        let alert = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        let expected = rustls::Error::AlertReceived(AlertDescription::InternalError);
        assert_eq!(alert, Some(&expected), "{name}");
        assert_eq!(world.failed().await, (name.to_owned(), 443, reason.to_owned()));
        assert_eq!(world.event_names(), ["upstream.failed"]);
        world.assert_nothing_left().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_never_ends_is_ended() {
    let world = World::new().await;
    let mut stream = world.connect("denied.test", 443).await;
    stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    // The clock runs on by itself while nothing else can happen.
    let end = stream.read_u8().await.unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    let expected = ("denied.test".to_owned(), 443, "host_not_listed".to_owned());
    assert_eq!(world.denied().await, expected);
    world.assert_nothing_left().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_is_kept_for_an_hour_and_no_longer() {
    let world = World::new().await;
    let mut agent = world.connect("ssh.test", 22).await;
    let (_stream, _) = world.ssh.accept().await.unwrap();
    let opened = tokio::time::Instant::now();
    let end = agent.read_u8().await.unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert!(opened.elapsed() >= Duration::from_secs(3600));
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_no_attempt_where_its_destination_is_allowed() {
    let world = World::new().await;
    drop(world.connect("allowed.test", 443).await);
    drop(world.connect("denied.test", 443).await);
    let expected = ("denied.test".to_owned(), 443, "host_not_listed".to_owned());
    assert_eq!(world.denied().await, expected);
    assert_eq!(world.event_names(), ["egress.denied"]);
}

#[tokio::test]
async fn a_refused_handshake_is_answered_although_more_bytes_follow() {
    let world = World::new().await;
    let mut stream = world.connect("denied.test", 443).await;
    let mut hello = Vec::new();
    let name = "denied.test".to_owned().try_into().unwrap();
    let config = super::world::client_config(&[]);
    let mut client = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    client.write_tls(&mut hello).unwrap();
    hello.extend_from_slice(&[0; 20_000]);
    stream.write_all(&hello).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await.unwrap(), ACCESS_DENIED);
}
