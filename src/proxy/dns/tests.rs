use std::str::FromStr;
use std::sync::Arc;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use kvro_ledger::event::{DnsAnswered, DnsRefused};
use kvro_ledger::{Event, Recorder};
use proptest::prelude::*;

use super::answer::{Answer, answer};
use super::serve::Zone;
use crate::address_book::AddressBook;
use crate::rules::Rules;

fn zone() -> Zone {
    let allow = ["api.example.com", "*.wild.example", "git.example.com:22"];
    let deny = ["secret.wild.example"];
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Zone {
        rules: Rules::new(parse(&allow), parse(&deny)),
        book: Arc::new(AddressBook::default()),
        recorder: Recorder::to_memory().0,
    }
}

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_str(name).unwrap(), kind));
    message
}

fn ask(zone: &Zone, message: &Message) -> (Message, Option<Event>) {
    let Answer { reply, event } = answer(&message.to_vec().unwrap(), zone);
    (Message::from_vec(&reply.unwrap()).unwrap(), event)
}

fn outcome(zone: &Zone, name: &str, kind: RecordType) -> (ResponseCode, Vec<RData>) {
    let (reply, _) = ask(zone, &question(name, kind));
    (reply.metadata.response_code, reply.answers.iter().map(|r| r.data.clone()).collect())
}

fn a(address: [u8; 4]) -> RData {
    RData::A(std::net::Ipv4Addr::from(address).into())
}

#[test]
fn an_allowed_name_has_one_address_for_the_run() {
    let zone = zone();
    let (first, event) = ask(&zone, &question("API.example.com.", RecordType::A));
    assert_eq!(first.metadata.id, 7);
    assert_eq!(first.metadata.response_code, ResponseCode::NoError);
    assert_eq!(first.answers[0].data, a([198, 18, 0, 1]));
    assert_eq!(
        event,
        Some(Event::DnsAnswered(DnsAnswered {
            name: "api.example.com".into(),
            kind: "A".into(),
            address: "198.18.0.1".into(),
        }))
    );
    let (again, event) = ask(&zone, &question("api.example.com", RecordType::A));
    assert_eq!(again.answers[0].data, a([198, 18, 0, 1]));
    assert_eq!(event, None);
    assert_eq!(
        outcome(&zone, "x.wild.example", RecordType::A),
        (ResponseCode::NoError, vec![a([198, 18, 0, 2])])
    );
    assert_eq!(
        outcome(&zone, "git.example.com", RecordType::A),
        (ResponseCode::NoError, vec![a([198, 18, 0, 3])])
    );
}

#[test]
fn an_allowed_name_has_no_other_records() {
    let zone = zone();
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB, RecordType::TXT] {
        assert_eq!(
            outcome(&zone, "api.example.com", kind),
            (ResponseCode::NoError, vec![]),
            "{kind}"
        );
    }
}

#[test]
fn any_other_name_does_not_exist() {
    let zone = zone();
    for name in [
        "denied.example",
        "example.com",
        "api.example.com.evil.test",
        "wild.example",
        "secret.wild.example",
        "metadata.google.internal",
        "1.0.18.198.in-addr.arpa",
        "127.1",
        "10.0.0.1",
        ".",
    ] {
        for kind in [RecordType::A, RecordType::AAAA, RecordType::TXT, RecordType::PTR] {
            assert_eq!(
                outcome(&zone, name, kind),
                (ResponseCode::NXDomain, vec![]),
                "{name} {kind}"
            );
        }
    }
}

#[test]
fn a_refusal_is_on_record_and_says_which_line_would_allow_the_name() {
    let zone = zone();
    let mut message = question("denied.example", RecordType::AAAA);
    message.set_edns(Edns::new());
    let (reply, event) = ask(&zone, &message);
    let text = b"\0\x0fkvro-jail: the policy does not list this server; \
        [net] allow = [\"denied.example\"] would allow it";
    assert_eq!(
        reply.edns.unwrap().option(EdnsCode::Unknown(15)),
        Some(&EdnsOption::Unknown(15, text.to_vec()))
    );
    let refused = |name: &str, kind: &str, reason: &str| {
        Some(Event::DnsRefused(DnsRefused {
            name: name.into(),
            kind: kind.into(),
            reason: reason.into(),
        }))
    };
    assert_eq!(event, refused("denied.example", "AAAA", "host_not_listed"));
    let (reply, event) = ask(&zone, &question("secret.wild.example", RecordType::A));
    assert_eq!(reply.edns, None);
    assert_eq!(event, refused("secret.wild.example", "A", "host_denied"));
    let mut odd = question("x.example", RecordType::A);
    odd.queries[0].set_name(Name::from_labels([&b"a b"[..], b"example"]).unwrap());
    let (_, event) = ask(&zone, &odd);
    assert_eq!(event, refused("a\\040b.example", "A", "name_malformed"));
}

#[test]
fn a_refusal_fits_one_datagram_whatever_the_name() {
    let zone = zone();
    let longest = format!("{}{}", "a".repeat(61) + ".", format!("{}.", "b".repeat(62)).repeat(3));
    let mut message = question(&longest, RecordType::A);
    message.set_edns(Edns::new());
    let reply = answer(&message.to_vec().unwrap(), &zone).reply.unwrap();
    assert!(reply.len() <= 512, "{}", reply.len());
}

#[test]
fn localhost_is_the_jails_own() {
    let zone = zone();
    let v6 = RData::AAAA(std::net::Ipv6Addr::LOCALHOST.into());
    assert_eq!(
        outcome(&zone, "localhost", RecordType::A),
        (ResponseCode::NoError, vec![a([127, 0, 0, 1])])
    );
    assert_eq!(outcome(&zone, "x.localhost", RecordType::AAAA), (ResponseCode::NoError, vec![v6]));
    assert_eq!(outcome(&zone, "localhost", RecordType::MX), (ResponseCode::NoError, vec![]));
}

#[test]
fn a_run_that_uses_up_its_addresses_gets_no_more_names() {
    let zone = zone();
    for i in 0..16_384 {
        zone.book.assign(&format!("n{i}.wild.example").parse().unwrap());
    }
    let (reply, event) = ask(&zone, &question("more.wild.example", RecordType::A));
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    let Some(Event::DnsRefused(DnsRefused { reason, .. })) = event else { panic!("{event:?}") };
    assert_eq!(reason, "too_many_names");
}

#[test]
fn what_is_no_plain_question_is_turned_away() {
    let zone = zone();
    let code = |message: &Message| ask(&zone, message).0.metadata.response_code;
    let mut two = question("api.example.com", RecordType::A);
    two.add_query(Query::query(Name::from_str("x.wild.example").unwrap(), RecordType::A));
    assert_eq!(code(&two), ResponseCode::FormErr);
    let mut chaos = question("api.example.com", RecordType::A);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(code(&chaos), ResponseCode::Refused);
    let notify = Message::new(7, MessageType::Query, OpCode::Notify);
    assert_eq!(code(&notify), ResponseCode::NotImp);
    let response = question("api.example.com", RecordType::A).into_response();
    assert_eq!(answer(&response.to_vec().unwrap(), &zone), Answer::default());
    let cut = &question("api.example.com", RecordType::A).to_vec().unwrap()[..20];
    let reply = Message::from_vec(&answer(cut, &zone).reply.unwrap()).unwrap();
    assert_eq!((reply.metadata.id, reply.metadata.response_code), (7, ResponseCode::FormErr));
    assert_eq!(answer(&cut[..11], &zone), Answer::default());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let zone = zone();
        if let Some(reply) = answer(&bytes, &zone).reply {
            prop_assert!(Message::from_vec(&reply).is_ok());
        }
    }

    #[test]
    fn no_flipped_byte_makes_it_panic(at in 0_usize..33, to in any::<u8>()) {
        let mut bytes = question("api.example.com", RecordType::A).to_vec().unwrap();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Some(reply) = answer(&bytes, &zone()).reply {
            prop_assert!(Message::from_vec(&reply).is_ok());
        }
    }
}
