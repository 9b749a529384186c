//! DNS over both transports.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsCode;
use hickory_proto::rr::{Name, RData, RecordType};
use kvro_ledger::Event;
use kvro_ledger::event::{DnsAnswered, DnsRefused};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::world::World;

fn question(name: &str) -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(Name::from_str(name).unwrap(), RecordType::A));
    message.set_edns(Edns::new());
    message.to_vec().unwrap()
}

async fn over_udp(world: &World, name: &str) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(world.dns_udp).await.unwrap();
    socket.send(&question(name)).await.unwrap();
    let mut reply = [0; 4096];
    let length = socket.recv(&mut reply).await.unwrap();
    Message::from_vec(&reply[..length]).unwrap()
}

async fn over_tcp(stream: &mut TcpStream, name: &str) -> Message {
    let question = question(name);
    stream.write_u16(question.len().try_into().unwrap()).await.unwrap();
    stream.write_all(&question).await.unwrap();
    let mut reply = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut reply).await.unwrap();
    Message::from_vec(&reply).unwrap()
}

#[tokio::test]
async fn an_allowed_name_has_the_same_address_by_both_ways_and_is_recorded_once() {
    let world = World::new().await;
    let expected = RData::A(Ipv4Addr::new(198, 18, 0, 1).into());
    let mut stream = TcpStream::connect(world.dns_tcp).await.unwrap();
    for reply in [
        over_udp(&world, "x.wild.test").await,
        over_tcp(&mut stream, "X.wild.test").await,
        over_tcp(&mut stream, "x.wild.test.").await,
    ] {
        assert_eq!(reply.metadata.id, 4711);
        assert_eq!(reply.answers[0].data, expected);
    }
    let name = world.book.name_of(Ipv4Addr::new(198, 18, 0, 1).into());
    assert_eq!(name.unwrap().as_str(), "x.wild.test");
    let events: Vec<_> = world.ledger.events().into_iter().skip(1).map(|(_, e)| e).collect();
    assert_eq!(
        events,
        [Event::DnsAnswered(DnsAnswered {
            name: "x.wild.test".to_owned(),
            kind: "A".to_owned(),
            address: "198.18.0.1".to_owned(),
        })]
    );
}

#[tokio::test]
async fn a_name_that_is_not_listed_does_not_exist_and_the_answer_says_why() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.dns_tcp).await.unwrap();
    let replies =
        [over_udp(&world, "denied.test").await, over_tcp(&mut stream, "denied.test").await];
    for reply in replies {
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
        let edns = reply.edns.unwrap();
        let option: Vec<u8> = edns.option(EdnsCode::Unknown(15)).unwrap().try_into().unwrap();
        let text = String::from_utf8(option[2..].to_vec()).unwrap();
        assert_eq!(option[..2], [0, 15]);
        assert!(text.contains("[net] allow = [\"denied.test\"]"), "{text}");
    }
    let refused = Event::DnsRefused(DnsRefused {
        name: "denied.test".to_owned(),
        kind: "A".to_owned(),
        reason: "host_not_listed".to_owned(),
    });
    let events: Vec<_> = world.ledger.events().into_iter().skip(1).map(|(_, e)| e).collect();
    assert_eq!(events, [refused.clone(), refused]);
}

#[tokio::test]
async fn whichever_resolver_is_asked_seems_to_answer() {
    let world = World::new().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for asked in [Ipv4Addr::new(127, 0, 0, 53), Ipv4Addr::LOCALHOST] {
        let asked = SocketAddr::new(asked.into(), world.dns_udp.port());
        socket.send_to(&question("denied.test"), asked).await.unwrap();
        let (_, answered) = socket.recv_from(&mut [0; 512]).await.unwrap();
        assert_eq!(answered, asked);
    }
}

#[tokio::test]
async fn garbage_neither_stops_the_server_nor_keeps_a_connection() {
    let world = World::new().await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for garbage in [&b""[..], b"x", &[0xff; 2000]] {
        socket.send_to(garbage, world.dns_udp).await.unwrap();
    }
    let mut stream = TcpStream::connect(world.dns_tcp).await.unwrap();
    stream.write_all(&[0, 3, 1, 2, 3]).await.unwrap();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    let reply = over_udp(&world, "allowed.test").await;
    assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
}
