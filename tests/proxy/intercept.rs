//! Inference servers: the door is the server towards the agent, and its own client outside.

use std::sync::Arc;

use kvro_ledger::event::{EgressAllowed, Via};
use rustls::AlertDescription;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::world::{World, client_config, read_to_end};

const SERVER: &str = "api.anthropic.com";

#[tokio::test]
async fn a_request_is_read_at_the_door_and_answered_by_the_server() {
    let world = World::new().await;
    let upstream = async {
        let mut stream = world.authority.accept(&world.inference, SERVER).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("GET /v1/models HTTP/1.1\r\n"), "{head}");
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"data\": []}\n";
        stream.write_all(answer).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let agent = async {
        let stream = world.connect(SERVER, 443).await;
        let mut stream = world.shake(stream, SERVER).await.unwrap();
        let leaf = stream.get_ref().1.peer_certificates().unwrap();
        assert_eq!(leaf[1], world.run_ca);
        let request =
            format!("GET /v1/models HTTP/1.1\r\nHost: {SERVER}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        String::from_utf8(read_to_end(&mut stream).await.unwrap()).unwrap()
    };
    let (_stream, answer) = tokio::join!(upstream, agent);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("{\"data\": []}\n"), "{answer}");
    assert_eq!(
        world.allowed().await,
        EgressAllowed {
            connection: 1,
            server: SERVER.to_owned(),
            port: 443,
            peer: String::new(),
            via: Via::Intercept,
            rule: SERVER.to_owned(),
        }
    );
    world.closed().await;
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_run_is_on_record() {
    let world = World::new().await;
    let stream = world.connect(SERVER, 443).await;
    let config = client_config(&[world.authority.certificate()]);
    let shaken =
        TlsConnector::from(Arc::new(config)).connect(SERVER.try_into().unwrap(), stream).await;
    shaken.map(drop).unwrap_err();
    assert_eq!(world.denied().await, (SERVER.to_owned(), 443, "ca_not_trusted".to_owned()));
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn a_request_for_another_server_does_not_pass_an_intercepted_connection() {
    let world = World::new().await;
    let stream = world.connect(SERVER, 443).await;
    let mut stream = world.shake(stream, SERVER).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(read_to_end(&mut stream).await.unwrap()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(
        world.denied().await,
        ("allowed.test".to_owned(), 443, "host_header_mismatch".to_owned())
    );
    world.assert_nothing_left().await;
}

#[tokio::test]
async fn no_listed_port_leads_around_the_meter() {
    for (bytes, reason) in [
        (&b"SSH-2.0-x\r\n"[..], "protocol_unknown"),
        (b"POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\n\r\n", "not_meterable"),
    ] {
        let world = World::new().await;
        let mut stream = world.connect(SERVER, 22).await;
        stream.write_all(bytes).await.unwrap();
        assert_eq!(world.denied().await, (SERVER.to_owned(), 22, reason.to_owned()));
        assert_eq!(world.event_names(), ["egress.denied"]);
        world.assert_nothing_left().await;
    }
    let world = World::new().await;
    let stream = world.connect(SERVER, 22).await;
    let stream = world.shake(stream, SERVER).await.unwrap();
    assert_eq!(stream.get_ref().1.peer_certificates().unwrap()[1], world.run_ca);
}

#[tokio::test]
async fn only_http_1_is_offered_to_the_agent() {
    let world = World::new().await;
    let stream = world.connect(SERVER, 443).await;
    let mut config = client_config(std::slice::from_ref(&world.run_ca));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(SERVER.try_into().unwrap(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));

    let stream = world.connect(SERVER, 443).await;
    let mut config = client_config(std::slice::from_ref(&world.run_ca));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let error = connector.connect(SERVER.try_into().unwrap(), stream).await.unwrap_err();
    let alert = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    let expected = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    assert_eq!(alert, Some(&expected));
}
