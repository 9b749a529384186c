use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kvro_ledger::event::{Basis, CallKind, Cost, InferenceSettled, TokenUsage};
use kvro_ledger::{MemoryLedger, PicoUsd};
use serde_json::{Value, json};

use super::super::decoded::{Until, encoded};
use super::*;
use crate::body::BodyError;
use crate::gate::{
    Account, Ask, Fees, Outcome, Permit, Refusal, Reservation, ServedTerms, Settlement, Usage,
};
use crate::upstream::DialError;

/// How a scripted answer's body goes on after its pieces.
#[derive(Clone, Copy)]
enum After {
    End,
    Break,
    /// Nothing more comes.
    Silence,
}

/// A body in pieces.
struct Pieces(VecDeque<Bytes>, After, Option<u64>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match (self.0.pop_front(), self.1) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, After::End) => Poll::Ready(None),
            (None, After::Break) => Poll::Ready(Some(Err(BodyError::Cut))),
            (None, After::Silence) => Poll::Pending,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.2.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// What the scripted provider does.
enum Script {
    Answer(Response<Body>),
    Fail(UpstreamError),
    Silence,
}

#[derive(Default)]
struct Stub {
    script: Mutex<Option<Script>>,
    seen: Mutex<Vec<(Parts, Bytes)>>,
}

impl fmt::Debug for Stub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stub")
    }
}

impl Transport for Arc<Stub> {
    fn send<'a>(&'a self, _: &'a Server, request: Request<Body>) -> Sending<'a> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            self.seen.lock().unwrap().push((parts, body));
            let script = self.script.lock().unwrap().take();
            match script {
                Some(Script::Answer(response)) => Ok(response),
                Some(Script::Fail(error)) => Err(error),
                Some(Script::Silence) | None => std::future::pending().await,
            }
        })
    }
}

/// A gate that says what it is told to, and remembers.
#[derive(Debug, Default)]
struct Till {
    output_limit: Option<u64>,
    refusal: Option<Refusal>,
    asks: Mutex<Vec<Ask>>,
    outcomes: Mutex<Vec<Outcome>>,
}

#[derive(Debug)]
struct Door(Arc<Till>);

impl Gate for Door {
    fn admit(&self, ask: &Ask) -> Result<Permit, Refusal> {
        self.0.asks.lock().unwrap().push(ask.clone());
        if let Some(refusal) = &self.0.refusal {
            return Err(refusal.clone());
        }
        let account: Arc<dyn Account> = Arc::<Till>::clone(&self.0);
        let reservation = Reservation {
            model: ask.model.clone(),
            kind: ask.kind,
            cost: Some(PicoUsd::new(7)),
            input: None,
            output: None,
            output_limit: self.0.output_limit,
        };
        Ok(Permit::new(account, reservation))
    }

    fn patience(&self) -> Patience {
        Patience::Disk
    }
}

impl Account for Till {
    fn settle(&self, reservation: &Reservation, outcome: &Outcome) -> Settlement {
        self.outcomes.lock().unwrap().push(outcome.clone());
        let (kind, basis) = match outcome {
            Outcome::Reported(_) => (reservation.kind, Basis::Reported),
            Outcome::Partial(_) | Outcome::Unknown => (reservation.kind, Basis::Reserved),
            Outcome::Rejected => (CallKind::Call, Basis::Rejected),
            Outcome::RejectedAt(_) => (CallKind::Call, Basis::Reported),
        };
        Settlement { kind, cost: Cost::Known(PicoUsd::new(1)), basis }
    }
}

struct Fixture {
    exchange: Exchange,
    stub: Arc<Stub>,
    till: Arc<Till>,
    ledger: MemoryLedger,
}

fn fixture(till: Till) -> Fixture {
    let (recorder, ledger) = Recorder::to_memory();
    let (stub, till) = (Arc::new(Stub::default()), Arc::new(till));
    let transport = Box::new(Arc::clone(&stub));
    let gate = Arc::new(Door(Arc::clone(&till)));
    let mapped = BTreeMap::from([("gateway.test".parse().unwrap(), Provider::OpenAi)]);
    Fixture { exchange: Exchange::over(transport, gate, recorder, mapped), stub, till, ledger }
}

impl Fixture {
    fn script(&self, script: Script) {
        *self.stub.script.lock().unwrap() = Some(script);
    }

    fn answers(&self, status: u16, kind: &str, pieces: &[&str], after: After) {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
        let response = Response::builder()
            .status(status)
            .header("content-type", kind)
            .header("connection", "close")
            .header("x-kept", "1")
            .body(Pieces(pieces, after, None).boxed())
            .unwrap();
        self.script(Script::Answer(response));
    }

    async fn put(&self, server: &str, request: Request<Body>) -> Response<Body> {
        let server = Server::new(server.parse().unwrap(), 443);
        self.exchange.answer(&server, request).await
    }

    fn outcomes(&self) -> Vec<Outcome> {
        self.till.outcomes.lock().unwrap().clone()
    }

    fn sent(&self) -> usize {
        self.stub.seen.lock().unwrap().len()
    }

    /// The body that the provider saw.
    fn sent_body(&self) -> String {
        String::from_utf8(self.stub.seen.lock().unwrap()[0].1.to_vec()).unwrap()
    }

    /// The recorded events in short.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other event is expected here")]
    fn record(&self) -> Vec<String> {
        self.ledger
            .events()
            .into_iter()
            .map(|(_, event)| match event {
                Event::InferenceRequested(e) => format!("requested {} {}", e.call, e.model),
                Event::InferenceSettled(e) => {
                    let total = e.usage.input + e.usage.cache_read + e.usage.cache_write;
                    format!(
                        "settled {} {} {total}+{} {:?}",
                        e.call, e.status, e.usage.output, e.basis
                    )
                }
                Event::InferenceRefused(e) => {
                    format!("refused {} {} {}", e.model, e.status, e.reason)
                }
                Event::InferenceAborted(e) => format!("aborted {} {}", e.call, e.reason),
                Event::UpstreamFailed(e) => format!("failed {} {}", e.server, e.reason),
                other => format!("{other:?}"),
            })
            .collect()
    }
}

const ANTHROPIC: &str = "api.anthropic.com";
const OPENAI: &str = "api.openai.com";

fn post(path: &str, body: &str) -> Request<Body> {
    Request::post(path)
        .header("x-api-key", "agents-own")
        .header("accept-encoding", "gzip, br")
        .header("connection", "keep-alive, x-hop")
        .header("x-hop", "1")
        .body(full(body.to_owned()))
        .unwrap()
}

async fn read(response: Response<Body>) -> Result<String, BodyError> {
    let bytes = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(bytes.to_vec()).unwrap())
}

async fn read_json(response: Response<Body>) -> Value {
    serde_json::from_str(&read(response).await.unwrap()).unwrap()
}

const MESSAGE: &str =
    "{\"model\":\"claude-opus-5-5\",\"max_tokens\":4000,\"stream\":true,\"messages\":[]}";

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-5-5\",\"usage\":{\"input_tokens\":1000,\"cache_creation_input_tokens\":2000,\"cache_read_input_tokens\":3000,\"cache_creation\":{\"ephemeral_5m_input_tokens\":1500,\"ephemeral_1h_input_tokens\":500},\"output_tokens\":1,\"service_tier\":\"standard\"}}}\n\n";
const TEXT: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"pong\"}}\n\n";
const DELTA: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":40,\"input_tokens\":1000}}\n\n";
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn message_usage(output: u64) -> Usage {
    Usage {
        model: Some("claude-opus-5-5".to_owned()),
        tokens: TokenUsage {
            input: 1_000,
            cache_read: 3_000,
            cache_write: 2_000,
            cache_write_long: 500,
            output,
            web_searches: 0,
        },
        context_tokens: 6_000,
        terms: ServedTerms { tier: Some("standard".to_owned()), speed: None, geo: None },
        others: Vec::new(),
        fees: Fees::Listed,
    }
}

#[tokio::test]
async fn a_call_passes_unchanged_and_is_settled_from_what_its_provider_said() {
    let fixture = fixture(Till::default());
    fixture.answers(200, "text/event-stream", &[START, TEXT, DELTA, STOP], After::End);
    let response = fixture.put(ANTHROPIC, post("/v1/messages?beta=true", MESSAGE)).await;
    assert_eq!(response.headers().get("x-kept").unwrap(), "1");
    assert_eq!(response.headers().get("connection"), None);
    assert_eq!(read(response).await.unwrap(), [START, TEXT, DELTA, STOP].concat());

    assert_eq!(fixture.sent_body(), MESSAGE);
    let seen = fixture.stub.seen.lock().unwrap();
    let headers: Vec<_> = seen[0]
        .0
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(headers, [("x-api-key", "agents-own"), ("accept-encoding", "identity")]);
    assert_eq!(seen[0].0.uri, "/v1/messages?beta=true");

    assert_eq!(fixture.outcomes(), [Outcome::Reported(message_usage(40))]);
    let events = fixture.ledger.events();
    let Event::InferenceSettled(settled) = &events[1].1 else { panic!("{events:?}") };
    assert_eq!(
        *settled,
        InferenceSettled {
            call: 1,
            model: "claude-opus-5-5".to_owned(),
            kind: CallKind::Turn,
            status: 200,
            usage: message_usage(40).tokens,
            context_tokens: 6_000,
            cost_usd: Cost::Known(PicoUsd::new(1)),
            basis: Basis::Reported,
            duration_ms: settled.duration_ms,
            first_byte_ms: settled.first_byte_ms,
        }
    );
    assert!(settled.first_byte_ms.is_some_and(|first| first <= settled.duration_ms));
}

#[tokio::test]
async fn a_refusal_has_its_providers_shape_and_nothing_is_sent() {
    let refusal = Refusal {
        limit: "max_usd",
        used: "5".to_owned(),
        ceiling: "5".to_owned(),
        message: "kvro-jail: run budget reached".to_owned(),
    };
    let message = "kvro-jail: run budget reached";
    let quota = json!({"error": {"message": message, "type": "insufficient_quota", "param": null, "code": "insufficient_quota"}});
    for (server, path, status, expected) in [
        (
            ANTHROPIC,
            "/v1/messages",
            402,
            json!({"type": "error", "error": {"type": "billing_error", "message": message}, "request_id": "kvro-jail"}),
        ),
        (OPENAI, "/v1/chat/completions", 402, quota.clone()),
        ("gateway.test", "/v1/chat/completions", 402, quota),
        (
            OPENAI,
            "/v1/responses",
            400,
            json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": "budget_exceeded"}}),
        ),
    ] {
        let fixture = fixture(Till { refusal: Some(refusal.clone()), ..Till::default() });
        let response = fixture.put(server, post(path, "{\"model\":\"m\"}")).await;
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(response.headers().get("x-should-retry").unwrap(), "false");
        assert_eq!(response.headers().get("retry-after"), None);
        assert_eq!(read_json(response).await, expected);
        assert_eq!(fixture.record(), [format!("refused m {status} max_usd")]);
        assert_eq!(fixture.sent(), 0);
    }
}

#[tokio::test]
async fn what_cannot_be_metered_or_is_not_known_does_not_leave() {
    for (server, request, status, code) in [
        (ANTHROPIC, post("/v1/messages/batches", "{}"), 403, "unmetered"),
        (ANTHROPIC, post("/v1//messages", MESSAGE), 404, ""),
        (ANTHROPIC, post("/api/event_logging/batch", "{}"), 404, ""),
        (OPENAI, post("/v1/realtime/sessions", "{}"), 403, "unmetered"),
        (OPENAI, post("/v1/responses", "{\"model\":\"m\",\"background\":true}"), 403, "unmetered"),
        (OPENAI, post("/v1/responses", "{\"model\":\"a\",\"model\":\"b\"}"), 400, "malformed"),
        (OPENAI, post("/v1/chat/completions", "not json"), 400, "malformed"),
    ] {
        let fixture = fixture(Till::default());
        let path = request.uri().path().to_owned();
        let response = fixture.put(server, request).await;
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(response.headers().get("x-should-retry").unwrap(), "false");
        let recorded =
            if code.is_empty() { vec![] } else { vec![format!("refused  {status} {code}")] };
        assert_eq!(fixture.record(), recorded, "{path}");
        assert_eq!((fixture.sent(), fixture.outcomes().len()), (0, 0));
    }
}

#[tokio::test]
async fn a_websocket_is_told_to_use_http() {
    let fixture = fixture(Till::default());
    let request = Request::get("/v1/responses")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(full(""))
        .unwrap();
    let response = fixture.put(OPENAI, request).await;
    assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
    assert_eq!(fixture.sent(), 0);
}

#[tokio::test]
async fn a_request_over_the_bound_is_refused_unread() {
    let fixture = fixture(Till::default());
    let large = full(vec![b' '; MAX_REQUEST + 1]);
    let request = Request::post("/v1/messages").body(large).unwrap();
    assert_eq!(fixture.put(ANTHROPIC, request).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(fixture.record(), ["refused  413 too_large"]);
}

#[tokio::test]
async fn free_requests_pass_without_a_permit() {
    let fixture = fixture(Till::default());
    fixture.answers(200, "application/json", &["{\"input_tokens\":1}"], After::End);
    let response = fixture.put(ANTHROPIC, post("/v1/messages/count_tokens", "{}")).await;
    assert_eq!(read(response).await.unwrap(), "{\"input_tokens\":1}");
    assert_eq!((fixture.till.asks.lock().unwrap().len(), fixture.record().len()), (0, 0));
}

#[tokio::test]
async fn the_limit_that_was_reserved_is_the_one_that_is_sent() {
    for (server, path, body, sent) in [
        (
            ANTHROPIC,
            "/v1/messages",
            "{\"model\":\"m\",\"max_tokens\":4000,\"x\":1.0}",
            "{\"model\":\"m\",\"max_tokens\":99,\"x\":1.0}",
        ),
        (
            OPENAI,
            "/v1/responses",
            "{\"model\":\"m\"}",
            "{\"model\":\"m\",\"max_output_tokens\":99}",
        ),
        (
            OPENAI,
            "/v1/chat/completions",
            "{\"model\":\"m\",\"max_tokens\":4000}",
            "{\"model\":\"m\",\"max_tokens\":99}",
        ),
        (
            OPENAI,
            "/v1/chat/completions",
            "{\"model\":\"m\"}",
            "{\"model\":\"m\",\"max_completion_tokens\":99}",
        ),
    ] {
        let fixture = fixture(Till { output_limit: Some(99), ..Till::default() });
        fixture.answers(400, "application/json", &["{}"], After::End);
        let gzip = {
            use std::io::Write;
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(body.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let request =
            Request::post(path).header("content-encoding", "gzip").body(full(gzip)).unwrap();
        read(fixture.put(server, request).await).await.unwrap();
        assert_eq!(fixture.sent_body(), sent);
        assert_eq!(fixture.stub.seen.lock().unwrap()[0].0.headers.get("content-encoding"), None);
    }
}

const CHUNK: &str = "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{\"content\":\"pong\"},\"finish_reason\":null}],\"usage\":null}\n\n";
const FINISH: &str = "data: {\"model\":\"gpt-5\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n";
const USAGE: &str = "data: {\"model\":\"gpt-5\",\"choices\":[],\"usage\":{\"prompt_tokens\":6000,\"completion_tokens\":40,\"prompt_tokens_details\":{\"cached_tokens\":3000}}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn usage_is_asked_for_and_taken_out_again_unless_the_agent_asked_itself() {
    for (options, sent, body) in [
        ("", ",\"stream_options\":{\"include_usage\":true}", [CHUNK, FINISH, DONE].concat()),
        (
            ",\"stream_options\":{\"x\":1}",
            ",\"stream_options\":{\"x\":1,\"include_usage\":true}",
            [CHUNK, FINISH, DONE].concat(),
        ),
        (
            ",\"stream_options\":{\"include_usage\":true}",
            ",\"stream_options\":{\"include_usage\":true}",
            [CHUNK, FINISH, USAGE, DONE].concat(),
        ),
    ] {
        let fixture = fixture(Till::default());
        let pieces = [CHUNK, FINISH, USAGE, DONE];
        fixture.answers(200, "text/event-stream", &pieces, After::End);
        let request = format!("{{\"model\":\"gpt-5\",\"stream\":true{options}}}");
        let response = fixture.put(OPENAI, post("/v1/chat/completions", &request)).await;
        assert_eq!(read(response).await.unwrap(), body);
        assert_eq!(fixture.sent_body(), format!("{{\"model\":\"gpt-5\",\"stream\":true{sent}}}"));
        assert_eq!(fixture.record(), ["requested 1 gpt-5", "settled 1 200 6000+40 Reported"]);
    }
    // Some servers refuse the option on a request that does not stream.
    let fixture = fixture(Till::default());
    fixture.answers(200, "application/json", &["{}"], After::End);
    read(fixture.put(OPENAI, post("/v1/chat/completions", "{\"model\":\"m\"}")).await)
        .await
        .unwrap();
    assert_eq!(fixture.sent_body(), "{\"model\":\"m\"}");
}

#[tokio::test]
async fn an_agent_that_hangs_up_in_the_middle_pays_for_what_it_may_have_caused() {
    let fixture = fixture(Till::default());
    fixture.answers(200, "text/event-stream", &[START, TEXT], After::Silence);
    let mut body = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(fixture.outcomes(), [Outcome::Partial(message_usage(1))]);
    assert_eq!(
        fixture.record(),
        ["requested 1 claude-opus-5-5", "aborted 1 agent_left", "settled 1 200 6000+1 Reserved"]
    );
}

#[tokio::test]
async fn an_agent_that_hangs_up_before_the_answer_pays_in_full() {
    let fixture = fixture(Till::default());
    fixture.script(Script::Silence);
    {
        let mut waiting = Box::pin(fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)));
        std::future::poll_fn(|cx| {
            assert!(waiting.as_mut().poll(cx).is_pending());
            if fixture.sent() == 1 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    assert_eq!(fixture.outcomes(), [Outcome::Unknown]);
    assert_eq!(
        fixture.record(),
        ["requested 1 claude-opus-5-5", "aborted 1 agent_left", "settled 1 0 0+0 Reserved"]
    );
}

#[tokio::test]
async fn a_break_upstream_is_a_break_for_the_agent_however_it_looks() {
    for after in [After::Break, After::End] {
        let fixture = fixture(Till::default());
        fixture.answers(200, "text/event-stream", &[START, TEXT], after);
        let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
        read(response).await.unwrap_err();
        assert_eq!(fixture.outcomes(), [Outcome::Partial(message_usage(1))]);
        assert_eq!(fixture.record()[1], "aborted 1 upstream_broke");
    }
    // A stream without a single event is no answer either.
    let fixture = fixture(Till::default());
    fixture.answers(200, "text/event-stream", &[], After::End);
    let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
    read(response).await.unwrap_err();
    assert_eq!(fixture.outcomes(), [Outcome::Unknown]);
}

#[tokio::test]
async fn an_error_in_the_stream_is_passed_on_and_settled_conservatively() {
    let fixture = fixture(Till::default());
    let error =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    fixture.answers(200, "text/event-stream", &[START, error], After::End);
    let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
    assert_eq!(read(response).await.unwrap(), [START, error].concat());
    assert_eq!(fixture.outcomes(), [Outcome::Partial(message_usage(1))]);
}

#[tokio::test]
async fn what_a_provider_rejects_is_no_turn_and_costs_what_it_says() {
    let usage = "{\"error\":{},\"model\":\"claude-opus-5-5\",\"usage\":{\"input_tokens\":9,\"output_tokens\":0}}";
    for (status, body) in [(429, "{\"type\":\"error\"}"), (529, ""), (302, "")] {
        let fixture = fixture(Till::default());
        fixture.answers(status, "application/json", &[body], After::End);
        let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
        assert_eq!(response.status(), status);
        assert_eq!(read(response).await.unwrap(), body);
        assert_eq!(fixture.outcomes(), [Outcome::Rejected]);
        assert_eq!(fixture.record()[1], format!("settled 1 {status} 0+0 Rejected"));
    }
    let fixture = fixture(Till::default());
    fixture.answers(500, "application/json", &[usage], After::End);
    read(fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await).await.unwrap();
    assert!(matches!(fixture.outcomes()[..], [Outcome::RejectedAt(_)]));
    assert_eq!(fixture.record()[1], "settled 1 500 9+0 Reported");
}

#[tokio::test]
async fn an_answer_without_usage_or_in_an_encoding_is_never_free() {
    let nothing = "{\"model\":\"m\",\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}";
    for body in ["{}", nothing, "", "broken"] {
        let fixture = fixture(Till::default());
        fixture.answers(200, "application/json", &[body], After::End);
        let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
        // What is not JSON is taken for a stream, and one that never says its end is a break.
        assert_eq!(read(response).await.is_err(), body == "broken");
        assert_eq!(fixture.outcomes().len(), 1);
        assert!(fixture.record().last().unwrap().ends_with("Reserved"), "{body}");
    }
    let fixture = fixture(Till::default());
    let response =
        Response::builder().header("content-encoding", "x-odd").body(full(START)).unwrap();
    fixture.script(Script::Answer(response));
    let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
    assert_eq!(response.headers().get("content-encoding").unwrap(), "x-odd");
    read(response).await.unwrap();
    assert_eq!(fixture.outcomes(), [Outcome::Unknown]);
}

#[tokio::test]
async fn an_encoding_that_was_not_asked_for_is_undone_and_metered() {
    let whole = [START, TEXT, DELTA, STOP].concat();
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let bytes = encoded(encoding, whole.as_bytes(), Until::End).await;
        for (length, is_whole) in [(bytes.len(), true), (bytes.len() - 9, false)] {
            let fixture = fixture(Till::default());
            let pieces = bytes[..length].chunks(7).map(Bytes::copy_from_slice).collect();
            let response = Response::builder()
                .header("content-type", "text/event-stream")
                .header("content-encoding", encoding.to_uppercase())
                .header("content-length", length)
                .body(Pieces(pieces, After::End, None).boxed())
                .unwrap();
            fixture.script(Script::Answer(response));
            let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
            for gone in ["content-encoding", "content-length"] {
                assert_eq!(response.headers().get(gone), None, "{encoding}");
            }
            let read = read(response).await;
            assert_eq!(read.is_ok(), is_whole, "{encoding}");
            match fixture.outcomes()[..] {
                [Outcome::Reported(ref usage)] => assert_eq!(*usage, message_usage(40)),
                [Outcome::Partial(_) | Outcome::Unknown] => assert!(!is_whole, "{encoding}"),
                ref other => panic!("{encoding}: {other:?}"),
            }
            assert_eq!(read.ok().filter(|_| is_whole), is_whole.then(|| whole.clone()));
        }
    }
}

#[tokio::test]
async fn an_event_in_an_encoding_passes_as_soon_as_it_is_there() {
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let fixture = fixture(Till::default());
        let pieces =
            VecDeque::from([encoded(encoding, START.as_bytes(), Until::Flush).await.into()]);
        let response = Response::builder()
            .header("content-encoding", encoding)
            .body(Pieces(pieces, After::Silence, None).boxed())
            .unwrap();
        fixture.script(Script::Answer(response));
        let mut body = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await.into_body();
        let mut read = Vec::new();
        while read.len() < START.len() {
            let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await;
            read.extend(frame.expect(encoding).unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!(String::from_utf8(read).unwrap(), START);
    }
}

#[tokio::test]
async fn a_call_is_paid_for_before_the_agent_can_know_that_it_is_over() {
    let fixture = fixture(Till::default());
    fixture.answers(200, "text/event-stream", &[START, DELTA, STOP], After::Silence);
    let mut body = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await.into_body();
    let mut paid = Vec::new();
    for _ in 0..3 {
        body.frame().await.unwrap().unwrap();
        paid.push(fixture.outcomes().len());
    }
    assert_eq!(paid, [0, 0, 1]);
    drop(body);
    assert_eq!(fixture.outcomes().len(), 1);

    // A whole JSON answer is over with its last byte: nobody asks for more.
    let fixture = self::fixture(Till::default());
    let answer = "{\"model\":\"gpt-5\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}";
    let (first, second) = answer.split_at(20);
    let pieces = VecDeque::from([Bytes::from(first), Bytes::from(second)]);
    let body = Pieces(pieces, After::Silence, Some(answer.len() as u64)).boxed();
    fixture.script(Script::Answer(Response::new(body)));
    let mut body =
        fixture.put(OPENAI, post("/v1/responses", "{\"model\":\"gpt-5\"}")).await.into_body();
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream());
    assert_eq!(fixture.record()[1], "settled 1 200 5+1 Reported");
}

#[tokio::test]
async fn a_provider_that_was_not_reached_is_not_paid_and_one_that_fell_silent_may_be() {
    let unanswered = UpstreamError::Unanswered("reset".into());
    for (error, outcome, last) in [
        (UpstreamError::Dial(DialError::Name), Outcome::Rejected, "settled 1 0 0+0 Rejected"),
        (unanswered, Outcome::Unknown, "settled 1 0 0+0 Reserved"),
    ] {
        let fixture = fixture(Till::default());
        fixture.script(Script::Fail(error));
        let response = fixture.put(ANTHROPIC, post("/v1/messages", MESSAGE)).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(response.headers().get("x-should-retry"), None);
        assert_eq!(fixture.outcomes(), [outcome]);
        let record = fixture.record();
        assert!(record[1].starts_with("failed api.anthropic.com "), "{record:?}");
        assert_eq!(record.last().unwrap(), last);
    }
}
