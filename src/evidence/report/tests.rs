//! Reports of whole runs, compared whole.

use jiff::Timestamp;
use kvro_ledger::event::{
    AlertRaised, Basis, BudgetReserved, CallKind, Cost, DnsRefused, EgressAttempted, EgressDenied,
    EndedBy, HiddenOpened, InferenceRefused, InferenceRequested, InferenceSettled,
    IsolationApplied, LedgerRecovered, Repeated, RunEnded, RunStarted, TokenUsage, UpstreamFailed,
};
use kvro_ledger::{Actor, Entry, Event, LineHash, PicoUsd, Recorded};
use serde_json::json;

use crate::report::RunReport;

const RUN: &str = "20261130-161200-4f2a9c";

/// The entries of a run, one second apart.
fn entries(events: impl IntoIterator<Item = Event>) -> Vec<Entry> {
    (1_u64..)
        .zip(events)
        .map(|(seq, event)| Entry {
            seq,
            time: Timestamp::from_second(1_796_055_120 + i64::try_from(seq).unwrap()).unwrap(),
            run: RUN.parse().unwrap(),
            actor: Actor::Supervisor,
            event: Recorded::Known(event),
            prev: LineHash::NONE,
        })
        .collect()
}

fn report(events: impl IntoIterator<Item = Event>) -> RunReport {
    RunReport::from_entries("/state/ledger.jsonl", &entries(events))
}

fn started() -> Event {
    Event::RunStarted(RunStarted {
        command: vec!["claude".to_owned(), "-p".to_owned()],
        workspace: "/work".to_owned(),
        profile: "claude".to_owned(),
        policy: vec![],
        version: "0.1.0".to_owned(),
        uid: 1000,
        pid: 7,
    })
}

fn ended() -> Event {
    Event::RunEnded(RunEnded {
        exit_code: 122,
        ended_by: EndedBy::Limit,
        reason: "max_turns".to_owned(),
        duration_ms: 12_345,
    })
}

fn requested(call: u64, reserved: Option<u128>) -> Event {
    Event::InferenceRequested(InferenceRequested {
        call,
        provider: "anthropic".to_owned(),
        operation: "chat".to_owned(),
        model: "m".to_owned(),
        server: "api.example".to_owned(),
        reserved_usd: reserved.map(PicoUsd::new),
        request_bytes: 1,
    })
}

fn settled(call: u64, kind: CallKind, cost_usd: Cost) -> Event {
    Event::InferenceSettled(InferenceSettled {
        call,
        model: "m".to_owned(),
        kind,
        status: 200,
        usage: TokenUsage {
            input: 10,
            cache_read: 20,
            cache_write: 30,
            cache_write_long: 5,
            output: 40,
            web_searches: 0,
        },
        context_tokens: 50 + call,
        cost_usd,
        basis: Basis::Reported,
        duration_ms: 100 * call,
        first_byte_ms: Some(10 * call),
    })
}

fn dollars(text: &str) -> Cost {
    Cost::Known(text.parse().unwrap())
}

fn hidden(path: &str) -> Event {
    Event::HiddenOpened(HiddenOpened { path: path.to_owned() })
}

fn dns(name: &str, kind: &str) -> Event {
    Event::DnsRefused(DnsRefused {
        name: name.to_owned(),
        kind: kind.to_owned(),
        reason: "host_not_listed".to_owned(),
    })
}

fn repeated(of_seq: u64, count: u64) -> Event {
    Event::Repeated(Repeated { of_seq, count, last: String::new() })
}

#[test]
fn a_whole_run_reads_as_its_public_json() {
    let attempted = |server: &str, transport: &str| {
        Event::EgressAttempted(EgressAttempted {
            server: server.to_owned(),
            port: 81,
            transport: transport.to_owned(),
            pid: Some(4),
            command: None,
        })
    };
    let failed = |reason: &str| {
        Event::UpstreamFailed(UpstreamFailed {
            server: "x.example".to_owned(),
            port: 443,
            reason: reason.to_owned(),
            detail: String::new(),
        })
    };
    let found = report([
        started(),
        Event::IsolationApplied(IsolationApplied {
            level: "full".to_owned(),
            layers: vec![],
            missing: vec![],
        }),
        hidden(".env"),
        dns("denied.example", "A"),
        dns("denied.example", "AAAA"),
        requested(1, Some(1)),
        settled(1, CallKind::Turn, dollars("0.0169")),
        requested(2, None),
        settled(2, CallKind::Call, dollars("0.0000001")),
        repeated(4, 3),
        repeated(5, 2),
        repeated(3, 6),
        hidden("infra/.env"),
        attempted("192.0.2.1", "tcp"),
        attempted("2001:db8::1", "udp"),
        Event::EgressDenied(EgressDenied {
            server: "x.example".to_owned(),
            port: 22,
            reason: "port_not_listed".to_owned(),
        }),
        failed("unreachable"),
        failed("address_private"),
        Event::InferenceRefused(InferenceRefused {
            provider: "anthropic".to_owned(),
            model: "m".to_owned(),
            reason: "max_turns".to_owned(),
            status: 402,
        }),
        Event::AlertRaised(AlertRaised { what: "w".to_owned(), detail: "d".to_owned() }),
        ended(),
    ]);
    let refused = |kind: &str, what: &str, reason: &str, count: u64| json!({"kind": kind, "what": what, "reason": reason, "count": count});
    let expected = json!({
        "run": RUN,
        "command": ["claude", "-p"],
        "started": "2026-11-30T16:12:01Z",
        "ended": "2026-11-30T16:12:21Z",
        "exit_code": 122,
        "ended_by": "limit",
        "reason": "max_turns",
        "level": "full",
        "degraded": [],
        "ledger": "/state/ledger.jsonl",
        "turns": 1,
        "calls": 2,
        "tokens": {"input": 20, "cache_read": 40, "cache_write": 60, "output": 80},
        "context_tokens": 52,
        "cost_usd": "0.0169001",
        "duration_ms": 12_345,
        "latency": {"median_ms": 100, "p90_ms": 200, "max_ms": 200},
        "first_byte": {"median_ms": 10, "p90_ms": 20, "max_ms": 20},
        "refused": [
            refused("dns.refused", "denied.example", "host_not_listed", 7),
            refused("egress.attempted", "192.0.2.1:81", "", 1),
            refused("egress.attempted", "[2001:db8::1]:81/udp", "", 1),
            refused("egress.denied", "x.example:22", "port_not_listed", 1),
            refused("upstream.failed", "x.example:443", "address_private", 1),
            refused("inference.refused", "m", "max_turns", 1),
        ],
        "hidden_opened": [".env", "infra/.env"],
        "hidden_opens": 8,
        "quarantined": [],
        "processes": 0,
        "missed": [],
        "alerts": [{"what": "w", "detail": "d"}],
    });
    assert_eq!(serde_json::to_value(&found).unwrap(), expected);
    assert_eq!(serde_json::from_value::<RunReport>(expected).unwrap(), found);
}

#[test]
fn without_calls_the_cost_is_zero_and_known() {
    assert_eq!(report([started(), ended()]).cost_usd, dollars("0"));
}

#[test]
fn one_unknown_cost_makes_the_sum_unknown_and_never_zero() {
    let known = settled(1, CallKind::Turn, dollars("0.5"));
    let unknown = settled(2, CallKind::Turn, Cost::Unknown);
    for events in [[known.clone(), unknown.clone()], [unknown, known]] {
        let found = report(events);
        assert_eq!(serde_json::to_value(&found).unwrap()["cost_usd"], json!("unknown"));
    }
}

#[test]
fn a_call_that_was_never_settled_is_charged_as_reserved() {
    let one = settled(1, CallKind::Turn, dollars("0.5"));
    let open = |reserved| [requested(1, Some(7)), one.clone(), requested(2, reserved), ended()];
    assert_eq!(report(open(Some(250_000_000_000))).cost_usd, dollars("0.75"));
    assert_eq!(report(open(None)).cost_usd, Cost::Unknown);
}

#[test]
fn a_run_whose_supervisor_died_is_charged_what_was_promised() {
    let slice = Event::BudgetReserved(BudgetReserved {
        slice_usd: "1".parse().unwrap(),
        through_usd: "2".parse().unwrap(),
    });
    let one = settled(1, CallKind::Turn, dollars("0.5"));
    let recovered = Event::LedgerRecovered(LedgerRecovered {
        recovered_run: RUN.to_owned(),
        torn_bytes: 0,
        last_seq: 3,
    });
    let died = report([started(), slice.clone(), one.clone(), recovered]);
    assert_eq!(
        (died.cost_usd, died.ended_by, died.exit_code, died.reason.as_str()),
        (dollars("2"), Some(EndedBy::Failure), None, "the supervisor died")
    );
    let lived = report([started(), slice, one, ended()]);
    assert_eq!(lived.cost_usd, dollars("0.5"));
}

#[test]
fn a_run_that_goes_on_has_no_end() {
    let found = report([started()]);
    assert_eq!((found.ended, found.ended_by, found.exit_code), (None, None, None));
    assert_eq!(report([]).run, "");
}
