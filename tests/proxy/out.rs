//! The way out by itself: verification, protocols and the choice of addresses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, Version};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kvro_proxy::body::{empty, full};
use kvro_proxy::{Outside, Upstream, UpstreamError};
use rcgen::{CertificateParams, date_time_ymd};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::world::{Authority, Hosts, World, server};

fn outside(authority: &Authority, at: SocketAddr) -> Outside {
    Outside {
        connect_to: BTreeMap::from([(server("allowed.test:443"), at)]),
        danger_private: vec!["127.0.0.1/32".parse().unwrap()],
        extra_ca: vec![authority.certificate()],
        resolver: Arc::new(Hosts),
    }
}

fn request() -> Request<kvro_proxy::Body> {
    Request::get("/v1/x?y=1").header("host", "somewhere.else").body(empty()).unwrap()
}

/// Serves connections that say which protocol, host and target they were asked by.
async fn mirror(listener: TcpListener, acceptor: TlsAcceptor) -> Infallible {
    let mut connections = tokio::task::JoinSet::new();
    let mut number = 0;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        number += 1;
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let stream = acceptor.accept(stream).await.unwrap();
            let service = service_fn(move |request: Request<hyper::body::Incoming>| async move {
                let header = request.headers().get("host").map(|h| h.to_str().unwrap().to_owned());
                let host = request.uri().authority().map(ToString::to_string).or(header);
                let target = request.uri().path_and_query().unwrap().to_string();
                let version = request.version();
                Ok::<_, Infallible>(Response::new(full(format!(
                    "{number} {version:?} {host:?} {target}"
                ))))
            });
            let auto = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            auto.serve_connection(TokioIo::new(stream), service).await.unwrap();
        });
    }
}

#[tokio::test]
async fn requests_share_connections_of_either_protocol() {
    for (protocols, version, expected) in [
        (&["http/1.1"][..], Version::HTTP_11, "1 HTTP/1.1 Some(\"allowed.test\") /v1/x?y=1"),
        (&["h2", "http/1.1"], Version::HTTP_2, "1 HTTP/2.0 Some(\"allowed.test:443\") /v1/x?y=1"),
    ] {
        let authority = Authority::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream::new(outside(&authority, listener.local_addr().unwrap()));
        let params = CertificateParams::new(["allowed.test".to_owned()]).unwrap();
        let serving = mirror(listener, authority.acceptor(&params, protocols));
        let asking = async {
            for _ in 0..2 {
                let answer = upstream.send(&server("allowed.test:443"), request()).await.unwrap();
                assert_eq!(answer.version(), version);
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, expected);
            }
        };
        tokio::select! {
            never = serving => match never {},
            () = asking => {}
        }
    }
}

#[tokio::test]
async fn a_server_without_a_good_certificate_is_told_nothing() {
    let good = || CertificateParams::new(["allowed.test".to_owned()]).unwrap();
    let mut expired = good();
    expired.not_after = date_time_ymd(2001, 1, 1);
    let other = CertificateParams::new(["other.test".to_owned()]).unwrap();
    let stranger = Authority::new();
    let authority = Authority::new();
    for (what, acceptor) in [
        ("expired", authority.acceptor(&expired, &[])),
        ("another name", authority.acceptor(&other, &[])),
        ("unknown authority", stranger.acceptor(&good(), &[])),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream::new(outside(&authority, listener.local_addr().unwrap()));
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            match acceptor.accept(stream).await {
                Ok(mut stream) => stream.read_to_end(&mut Vec::new()).await.unwrap_or(0),
                Err(_) => 0,
            }
        };
        let meant = server("allowed.test:443");
        let (told, asked) = tokio::join!(serving, upstream.send(&meant, request()));
        assert_eq!(asked.map(drop).map_err(|error| error.code()), Err("certificate"), "{what}");
        assert_eq!(told, 0, "{what}");
    }
}

#[tokio::test]
async fn an_address_elsewhere_is_checked_like_any_other() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut outside = outside(&authority, listener.local_addr().unwrap());
    outside.danger_private.clear();
    let upstream = Upstream::new(outside);
    let asked = upstream.send(&server("allowed.test:443"), request()).await;
    let error: UpstreamError = asked.map(drop).unwrap_err();
    assert_eq!(error.code(), "address_private");
    assert_eq!(error.detail(), "127.0.0.1 is a private address");
}

#[tokio::test]
async fn of_several_addresses_only_permitted_ones_are_dialled() {
    // `rebound.test` resolves to a private, a metadata and an opened address, in this order.
    let world = World::new().await;
    let at = world.rebound.local_addr().unwrap();
    let upstream = Upstream::new(outside(&world.authority, at));
    let meant = server(&format!("rebound.test:{}", at.port()));
    let serving = async {
        let stream = world.authority.accept(&world.rebound, "rebound.test").await;
        drop(stream);
    };
    let ((), asked) = tokio::join!(serving, upstream.send(&meant, request()));
    assert_eq!(asked.map(drop).map_err(|error| error.code()), Err("unanswered"));
}
