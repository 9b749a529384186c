//! Anthropic Messages: what its requests ask for, where its answers say what was used.
//!
//! Input, cache reads and cache writes are disjoint already. In a stream all counts are cumulative
//! and repeat the input side, so the last value wins, and a zero never replaces what was said.

use http::StatusCode;
use kvro_ledger::event::{CallKind, TokenUsage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::census::{Block, Census, Judge};
use super::denial::Denial;
use super::dialect::{Dialect, Inspection, UsageAsk};
use super::members::{Malformed, Members};
use super::route::Route;
use super::tally::{End, Extent, Tally};
use crate::gate::{Adjust, AskedTerms, AskedTier, InputBound, OutputAsk, ServedTerms, Side, Speed};

const MESSAGES: Dialect = Dialect {
    operation: "chat",
    kind: CallKind::Turn,
    ceiling: denial,
    inspect,
    read_event,
    read_answer,
};

/// The most tokens that one image is counted as, at the largest size that is not scaled down.
const IMAGE: u64 = 5_000;

/// Sorts a request for this provider's own servers; exact paths only.
pub(super) fn route(method: &str, path: &str) -> Route<'static> {
    match (method, path) {
        ("POST", "/v1/messages") => Route::Billable(&MESSAGES, None),
        ("POST", "/v1/messages/count_tokens") | ("GET" | "HEAD", "/v1/models") => Route::Free,
        ("GET", path) if path.starts_with("/v1/models/") => Route::Free,
        (_, path)
            if [
                "/v1/messages/batches",
                "/v1/complete",
                "/v1/sessions",
                "/v1/dreams",
                "/v1/files",
            ]
            .iter()
            .chain(&["/v1/deployments", "/v1/organizations", "/v1/skills", "/v1/tunnels"])
            .any(|prefix| path.starts_with(prefix)) =>
        {
            Route::Unmetered
        }
        _ => Route::Unknown,
    }
}

/// How this provider words an error.
pub(super) fn denial(denial: &Denial) -> (StatusCode, Value) {
    let (status, kind) = match denial {
        Denial::Ceiling(_) => (StatusCode::PAYMENT_REQUIRED, "billing_error"),
        Denial::Malformed(_) => (StatusCode::BAD_REQUEST, "invalid_request_error"),
        Denial::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
        Denial::Unmetered => (StatusCode::FORBIDDEN, "permission_error"),
        Denial::Unknown => (StatusCode::NOT_FOUND, "not_found_error"),
        Denial::Upgrade => (StatusCode::UPGRADE_REQUIRED, "invalid_request_error"),
        Denial::Upstream => (StatusCode::BAD_GATEWAY, "api_error"),
    };
    let error = json!({ "type": kind, "message": denial.message() });
    (status, json!({ "type": "error", "error": error, "request_id": "kvro-jail" }))
}

#[derive(Deserialize, Default)]
struct Request {
    model: Option<String>,
    max_tokens: Option<u64>,
    thinking: Option<Thinking>,
    speed: Option<String>,
    service_tier: Option<String>,
    tools: Option<Vec<Tool>>,
    mcp_servers: Option<Vec<Value>>,
    context_management: Option<Value>,
}

#[derive(Deserialize)]
struct Thinking {
    budget_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    max_uses: Option<u64>,
}

fn inspect(members: &Members<'_>) -> Result<Inspection, Malformed> {
    let request: Request = members.read()?;
    let census = Census::take(members, JUDGE)?;
    let thinking = request.thinking.as_ref().and_then(|thinking| thinking.budget_tokens);
    let (input, web_searches) = input_bound(members, &request, &census);
    let tier = match request.service_tier.as_deref() {
        Some("standard_only") => AskedTier::Standard,
        _ => AskedTier::Any,
    };
    let speed = match request.speed.as_deref() {
        None | Some("standard") => Speed::Standard,
        Some(_) => Speed::Fast,
    };
    Ok(Inspection {
        model: request.model.unwrap_or_default(),
        input,
        output: OutputAsk {
            limit: request.max_tokens,
            // The provider wants more room than the thinking budget takes.
            floor: thinking.map_or(0, |budget| budget.saturating_add(1)),
            adjust: Adjust::Allowed,
            answers: 1,
            extra: 0,
        },
        terms: AskedTerms { tier, speed, cache: census.cache(), web_searches },
        context_at_least: census.context_at_least(),
        limit_field: &["max_tokens"],
        usage: UsageAsk::AsIs,
    })
}

const JUDGE: Judge = Judge { of_type: block, of_member: |_| Block::Plain };

fn block(kind: &str) -> Block {
    match kind {
        "image" => Block::Image,
        "document" | "file" | "container_upload" => Block::Opaque,
        _ => Block::Plain,
    }
}

/// The most input that the call can be billed for, and the searches it may run.
fn input_bound(members: &Members<'_>, request: &Request, census: &Census) -> (InputBound, u64) {
    let mut steps: u64 = 1;
    let mut searches: u64 = 0;
    if request.mcp_servers.as_ref().is_some_and(|servers| !servers.is_empty()) {
        return (InputBound::Unbounded("MCP servers called by the provider"), 0);
    }
    for tool in request.tools.iter().flatten() {
        match (tool.kind.as_deref().map(family), tool.max_uses) {
            (None | Some("custom" | "bash" | "text_editor" | "computer" | "memory"), _) => {}
            (Some("web_search"), Some(uses)) => {
                steps = steps.saturating_add(uses);
                searches = searches.saturating_add(uses);
            }
            (Some("web_fetch"), Some(uses)) => steps = steps.saturating_add(uses),
            (Some(_), _) => return (InputBound::Unbounded("a tool run by the provider"), 0),
        }
    }
    if let Some(management) = &request.context_management
        && management.to_string().contains("\"compact")
    {
        // A compaction is a generation of its own, over the same context.
        steps = steps.saturating_add(1);
    }
    if steps > 1 || census.opaque > 0 {
        return (InputBound::Windows(steps), searches);
    }
    let images = census.images.saturating_mul(IMAGE);
    (InputBound::Tokens(members.text_bound().saturating_add(images)), searches)
}

/// `web_search_20260209` without its date.
fn family(kind: &str) -> &str {
    match kind.rsplit_once('_') {
        Some((family, date)) if date.bytes().all(|b| b.is_ascii_digit()) => family,
        _ => kind,
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    message: Option<Message>,
    delta: Option<Delta>,
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Delta {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    model: Option<String>,
    usage: Option<Counts>,
}

#[derive(Deserialize, Default)]
struct Counts {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<CacheCreation>,
    output_tokens: Option<u64>,
    server_tool_use: Option<ServerToolUse>,
    service_tier: Option<String>,
    speed: Option<String>,
    inference_geo: Option<String>,
    iterations: Option<Vec<Iteration>>,
}

#[derive(Deserialize)]
struct CacheCreation {
    ephemeral_5m_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ServerToolUse {
    web_search_requests: Option<u64>,
}

#[derive(Deserialize)]
struct Iteration {
    #[serde(rename = "type")]
    kind: Option<String>,
    model: Option<String>,
    #[serde(flatten)]
    counts: FlatCounts,
}

#[derive(Deserialize)]
struct FlatCounts {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    cache_read_input_tokens: u64,
    #[serde(default)]
    cache_creation_input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
}

fn read_event(tally: &mut Tally, data: &[u8]) {
    let Ok(event) = serde_json::from_slice::<Event>(data) else {
        return;
    };
    match event.kind.as_str() {
        "message_start" => {
            if let Some(message) = event.message {
                read_message(tally, message, Extent::Input);
            }
        }
        "message_delta" => {
            let stopped = event.delta.is_some_and(|delta| delta.stop_reason.is_some());
            if let Some(counts) = event.usage {
                // The count of output is final once there is a reason to stop.
                let extent = if stopped { Extent::Whole } else { Extent::Input };
                read_counts(tally, counts, extent);
            }
        }
        "message_stop" | "error" => tally.end = End::Said,
        _ => {}
    }
}

fn read_answer(tally: &mut Tally, body: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Message>(body) else {
        return;
    };
    tally.end = End::Said;
    read_message(tally, message, Extent::Whole);
}

fn read_message(tally: &mut Tally, message: Message, extent: Extent) {
    tally.usage.model = message.model.or_else(|| tally.usage.model.take());
    if let Some(counts) = message.usage {
        read_counts(tally, counts, extent);
    }
}

fn read_counts(tally: &mut Tally, counts: Counts, extent: Extent) {
    let usage = &mut tally.usage;
    let said = |kept: &mut u64, said: Option<u64>| {
        if let Some(said) = said.filter(|&said| said > 0) {
            *kept = said;
        }
    };
    let tokens = &mut usage.tokens;
    // The split may be said once and the total grow behind it: what the split does not cover is
    // taken at the longer lifetime's price.
    let short = tokens.cache_write.saturating_sub(tokens.cache_write_long);
    let split = counts.cache_creation.and_then(|split| split.ephemeral_5m_input_tokens);
    said(&mut tokens.input, counts.input_tokens);
    said(&mut tokens.cache_read, counts.cache_read_input_tokens);
    said(&mut tokens.cache_write, counts.cache_creation_input_tokens);
    tokens.cache_write_long = tokens.cache_write.saturating_sub(split.unwrap_or(short));
    said(&mut tokens.output, counts.output_tokens);
    said(
        &mut tokens.web_searches,
        counts.server_tool_use.and_then(|used| used.web_search_requests),
    );
    let terms = &mut usage.terms;
    *terms = ServedTerms {
        tier: counts.service_tier.or_else(|| terms.tier.take()),
        speed: counts.speed.or_else(|| terms.speed.take()),
        geo: counts.inference_geo.or_else(|| terms.geo.take()),
    };
    usage.context_tokens = tokens.input_side();
    if let Some(iterations) = counts.iterations.filter(|iterations| !iterations.is_empty()) {
        read_iterations(tally, iterations);
    }
    if tally.extent != Extent::Whole {
        tally.extent = extent;
    }
}

/// Steps that the top level leaves out are billed beside it; the last one is the context.
fn read_iterations(tally: &mut Tally, iterations: Vec<Iteration>) {
    let usage = &mut tally.usage;
    usage.others.clear();
    for step in iterations {
        let counts = step.counts;
        let written = counts.cache_creation_input_tokens;
        let tokens = TokenUsage {
            input: counts.input_tokens,
            cache_read: counts.cache_read_input_tokens,
            cache_write: written,
            cache_write_long: written,
            output: counts.output_tokens,
            web_searches: 0,
        };
        match step.kind.as_deref() {
            Some("message" | "fallback_message") => usage.context_tokens = tokens.input_side(),
            _ => usage.others.push(Side { model: step.model, tokens }),
        }
    }
}
