//! Plain HTTP through the door.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::world::{NAMELESS, World, patiently, read_to_end};

/// Sends a request and reads all that comes back.
async fn ask(world: &World, name: &str, request: &str) -> String {
    let mut stream = world.connect(name, 80).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(read_to_end(&mut stream).await.unwrap()).unwrap()
}

/// Reads up to the end of a request's head.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn allowed_requests_share_a_connection_and_stream_both_ways() {
    let world = World::new().await;
    let upstream = async {
        let (mut stream, _) = world.http.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("GET /one?x=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("host: allowed.test\r\n"), "{head}");
        assert!(!head.contains("x-hop"), "{head}");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none").await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("POST /two HTTP/1.1\r\n"), "{head}");
        // The first half of the body has come before the second is sent.
        let mut half = [0; 4];
        stream.read_exact(&mut half).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ntwo").await.unwrap();
        half
    };
    let agent = async {
        let mut stream = world.connect("allowed.test", 80).await;
        let first =
            "GET /one?x=1 HTTP/1.1\r\nHost: allowed.test\r\nX-Hop: 1\r\nConnection: x-hop\r\n\r\n";
        stream.write_all(first.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let mut body = [0; 3];
        stream.read_exact(&mut body).await.unwrap();
        let second = "POST /two HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhalf";
        stream.write_all(second.as_bytes()).await.unwrap();
        let rest = read_to_end(&mut stream).await.unwrap();
        (body, String::from_utf8(rest).unwrap())
    };
    let (half, (one, two)) = tokio::join!(upstream, agent);
    assert_eq!((&half, &one), (b"half", b"one"));
    assert!(two.contains("two"), "{two}");
    assert_eq!(world.closed().await.connection, 1);
    assert_eq!(world.event_names(), ["egress.allowed", "egress.closed"]);
}

#[tokio::test]
async fn a_refusal_is_a_403_that_says_which_line_would_allow_it() {
    let world = World::new().await;
    let request = "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n";
    let answer = patiently(ask(&world, "denied.test", request)).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
    assert!(head.contains("x-kvro-reason: host_not_listed"), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        body,
        serde_json::json!({ "error": {
            "type": "kvro_denied",
            "code": "host_not_listed",
            "message": "denied.test:80: the policy does not list this server",
            "policy": "[net] allow = [\"denied.test\"]",
        }})
    );
    assert_eq!(world.denied().await, ("denied.test".to_owned(), 80, "host_not_listed".to_owned()));
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_request_that_asks_for_another_server_is_refused() {
    let table = [
        ("allowed.test", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 403, "host_header_mismatch"),
        (
            "allowed.test",
            "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n",
            403,
            "host_header_mismatch",
        ),
        (
            "allowed.test",
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n",
            403,
            "host_header_mismatch",
        ),
        ("allowed.test", "GET / HTTP/1.1\r\n\r\n", 403, "host_header_mismatch"),
        (
            "allowed.test",
            "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: denied.test\r\n\r\n",
            403,
            "host_header_mismatch",
        ),
        (
            "allowed.test",
            "GET http://denied.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
            400,
            "proxy_form",
        ),
        (
            "allowed.test",
            "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n",
            400,
            "proxy_form",
        ),
        (NAMELESS, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403, "address_without_name"),
        ("ssh.test", "GET / HTTP/1.1\r\nHost: ssh.test\r\n\r\n", 403, "port_not_listed"),
        (
            "secret.wild.test",
            "GET / HTTP/1.1\r\nHost: secret.wild.test\r\n\r\n",
            403,
            "host_denied",
        ),
        (
            "api.anthropic.com",
            "POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\n\r\n",
            403,
            "not_meterable",
        ),
    ];
    for (name, request, status, reason) in table {
        let world = World::new().await;
        let answer = patiently(ask(&world, name, request)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(answer.contains(&format!("x-kvro-reason: {reason}\r\n")), "{request}: {answer}");
        assert_eq!(world.denied().await.2, reason, "{request}");
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn nothing_is_served_behind_a_refusal() {
    let world = World::new().await;
    let pipelined = "POST / HTTP/1.1\r\nHost: denied.test\r\nContent-Length: 3\r\n\r\nabc\
        GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    let answer = patiently(ask(&world, "allowed.test", pipelined)).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_a_502() {
    for (name, reason) in [
        ("gone.test", "unreachable"),
        ("private.test", "address_private"),
        ("metadata.test", "address_metadata"),
        ("missing.test", "name_not_found"),
    ] {
        let world = World::new().await;
        let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
        let answer = patiently(ask(&world, name, &request)).await;
        assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
        assert!(answer.contains("\"type\":\"kvro_upstream_failed\""), "{answer}");
        assert!(answer.contains(&format!("x-kvro-reason: {reason}\r\n")), "{answer}");
        assert_eq!(world.failed().await, (name.to_owned(), 80, reason.to_owned()));
        world.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn an_upgraded_connection_passes_what_is_not_http() {
    let world = World::new().await;
    let upstream = async {
        let (mut stream, _) = world.http.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.contains("upgrade: websocket\r\n"), "{head}");
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x01hi";
        stream.write_all(switch.as_bytes()).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"\x02ho");
    };
    let agent = async {
        let mut stream = world.connect("allowed.test", 80).await;
        let request = "GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let mut frame = [0; 3];
        stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\x01hi");
        stream.write_all(b"\x02ho").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut stream).await.unwrap(), b"");
    };
    tokio::join!(upstream, agent);
    world.closed().await;
    assert_eq!(world.event_names(), ["egress.allowed", "egress.closed"]);
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let world = World::new().await;
    let upstream = async {
        let (mut stream, _) = world.http.accept().await.unwrap();
        read_head(&mut stream).await;
        let cut = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
        stream.write_all(cut).await.unwrap();
    };
    let request = "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    let mut stream = world.connect("allowed.test", 80).await;
    let agent = async {
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer).await.map(drop);
        (String::from_utf8(answer).unwrap(), end)
    };
    let ((), (answer, _)) = tokio::join!(upstream, agent);
    assert!(answer.contains("half"), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_ends_is_ended() {
    let world = World::new().await;
    let answer = ask(&world, "allowed.test", "GET / HTTP/1.1\r\nHost: allo").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_head_without_measure_is_refused() {
    let world = World::new().await;
    let mut stream = world.connect("allowed.test", 80).await;
    let head = format!("GET / HTTP/1.1\r\nHost: allowed.test\r\nX: {}", "x".repeat(200_000));
    let (mut reader, mut writer) = stream.split();
    let (_, answer) = tokio::join!(writer.write_all(head.as_bytes()), async {
        let mut answer = Vec::new();
        let end = reader.read_to_end(&mut answer).await.map(drop);
        (String::from_utf8(answer).unwrap(), end)
    });
    assert!(answer.0.is_empty() || answer.0.starts_with("HTTP/1.1 431 "), "{answer:?}");
    world.assert_nothing_left().await;
}
