//! Turns one DNS message into its reply. Pure: no socket, no clock, nothing is forwarded.
//!
//! A refusal is NXDOMAIN: REFUSED makes glibc try the next server and musl wait for five seconds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};
use kvro_ledger::Event;
use kvro_ledger::event::{DnsAnswered, DnsRefused};

use super::serve::Zone;
use crate::address_book::Assigned;
use crate::rules::{Decision, Reason, ServerName};

/// Names keep their address for the whole run.
const TTL: u32 = 60;
/// What fits through any path in one datagram.
const MAX_PAYLOAD: u16 = 1232;
/// RFC 8914: the extended error option, and its code "Blocked".
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;
/// Keeps a refusal within 512 bytes, so that it never needs TCP.
const LONGEST_TEXT: usize = 200;

/// What to send back and what to record. Nothing is sent back to what is no question.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) reply: Option<Vec<u8>>,
    pub(super) event: Option<Event>,
}

/// What a question comes to.
enum Verdict {
    /// The name exists and has these records, perhaps none of the asked type.
    Known(Option<RData>),
    Refused(String),
    Failed(ResponseCode),
}

/// Answers one message.
pub(super) fn answer(message: &[u8], zone: &Zone) -> Answer {
    let Ok(question) = Message::from_vec(message) else {
        return Answer { reply: form_error(message), event: None };
    };
    if question.metadata.message_type != MessageType::Query {
        return Answer::default();
    }
    let (verdict, event) = match question.queries.as_slice() {
        _ if question.metadata.op_code != OpCode::Query => {
            (Verdict::Failed(ResponseCode::NotImp), None)
        }
        [query] if query.query_class() != DNSClass::IN => {
            (Verdict::Failed(ResponseCode::Refused), None)
        }
        [query] => judge(query, zone),
        _ => (Verdict::Failed(ResponseCode::FormErr), None),
    };
    // A reply that cannot be encoded is none; the question came from the same codec.
    Answer { reply: reply_to(&question, verdict).to_vec().ok(), event }
}

fn judge(query: &Query, zone: &Zone) -> (Verdict, Option<Event>) {
    let asked = query.name().to_ascii();
    let kind = query.query_type();
    let refuse = |shown: &str, reason: Reason, text: String| {
        let (name, kind) = (shown.to_owned(), kind.to_string());
        let event = Event::DnsRefused(DnsRefused { name, kind, reason: reason.code().to_owned() });
        (Verdict::Refused(text), Some(event))
    };
    let name = match asked.parse::<ServerName>() {
        Ok(name) if name.address().is_none() => name,
        Ok(_) | Err(_) => {
            let reason = Reason::NameMalformed;
            return refuse(asked.trim_end_matches('.'), reason, reason.sentence().to_owned());
        }
    };
    if let Some(address) = own(&name, kind) {
        return (Verdict::Known(address), None);
    }
    // Defence::Door: network::a_name_that_is_not_listed_is_not_there.
    let decided = match zone.rules.judge_name(&name) {
        Decision::Deny(reason) => Err(reason),
        Decision::Allow(_) if kind != RecordType::A => return (Verdict::Known(None), None),
        Decision::Allow(_) => match zone.book.assign(&name) {
            Assigned::First(address) => Ok((address, true)),
            Assigned::Again(address) => Ok((address, false)),
            Assigned::Exhausted => Err(Reason::TooManyNames),
        },
    };
    match decided {
        Ok((address, first)) => {
            let event = first.then(|| {
                Event::DnsAnswered(DnsAnswered {
                    name: name.to_string(),
                    kind: kind.to_string(),
                    address: address.to_string(),
                })
            });
            (Verdict::Known(Some(RData::A(address.into()))), event)
        }
        Err(reason) => refuse(name.as_str(), reason, explain(reason, &name)),
    }
}

/// The jail's own loopback, which no policy governs (RFC 6761 section 6.3).
fn own(name: &ServerName, kind: RecordType) -> Option<Option<RData>> {
    let localhost = name.as_str() == "localhost" || name.as_str().ends_with(".localhost");
    let address: Option<IpAddr> = if kind == RecordType::A {
        Some(Ipv4Addr::LOCALHOST.into())
    } else if kind == RecordType::AAAA {
        Some(Ipv6Addr::LOCALHOST.into())
    } else {
        None
    };
    localhost.then(|| address.map(RData::from))
}

fn explain(reason: Reason, name: &ServerName) -> String {
    match reason.remedy_for_name(name) {
        Some(line) if line.len() + reason.sentence().len() < LONGEST_TEXT - 40 => {
            format!("kvro-jail: {}; {line} would allow it", reason.sentence())
        }
        Some(_) | None => format!("kvro-jail: {}", reason.sentence()),
    }
}

fn reply_to(question: &Message, verdict: Verdict) -> Message {
    let mut reply = Message::response(question.metadata.id, question.metadata.op_code);
    reply.metadata.recursion_desired = question.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    reply.add_queries(question.queries.iter().cloned());
    let mut edns = question.edns.as_ref().map(|_| {
        let mut edns = Edns::new();
        edns.set_max_payload(MAX_PAYLOAD);
        edns
    });
    match verdict {
        Verdict::Known(data) => {
            if let (Some(data), [query]) = (data, question.queries.as_slice()) {
                reply.add_answer(Record::from_rdata(query.name().clone(), TTL, data));
            }
        }
        Verdict::Refused(text) => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            if let Some(edns) = &mut edns {
                let option = [&BLOCKED.to_be_bytes(), text.as_bytes()].concat();
                edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
            }
        }
        Verdict::Failed(code) => reply.metadata.response_code = code,
    }
    if let Some(edns) = edns {
        reply.set_edns(edns);
    }
    reply
}

/// Says FORMERR to what at least has the header of a question.
fn form_error(message: &[u8]) -> Option<Vec<u8>> {
    let [a, b, flags, _, ..] = message else {
        return None;
    };
    if message.len() < 12 || flags & 0x80 != 0 {
        return None;
    }
    let id = u16::from_be_bytes([*a, *b]);
    Message::error_msg(id, OpCode::Query, ResponseCode::FormErr).to_vec().ok()
}
