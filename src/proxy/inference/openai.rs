//! OpenAI: its paths, its errors, and what both of its generation APIs share.
//!
//! Input counts include what was cached or written to a cache; output includes reasoning.

use http::StatusCode;
use kvro_ledger::event::{CallKind, TokenUsage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::census::{Block, Judge};
use super::denial::Denial;
use super::dialect::{Dialect, Inspection, UsageAsk};
use super::members::{Malformed, Members};
use super::openai_chat::CHAT;
use super::openai_responses::{COMPACT, RESPONSES};
use super::route::Route;
use super::tally::{End, Extent, Tally};
use crate::gate::{Adjust, AskedCache, AskedTerms, AskedTier, InputBound, OutputAsk};

const EMBEDDINGS: Dialect = Dialect {
    operation: "embeddings",
    kind: CallKind::Call,
    ceiling: denial,
    inspect: inspect_embeddings,
    read_event: |_, _| {},
    read_answer: read_embeddings,
};

/// The most tokens that one image is counted as, over all models and details.
pub(super) const IMAGE: u64 = 50_000;

/// Paths below these cost money that no answer tells, or reach stored data of the account.
const UNMETERED: [&str; 15] = [
    "/v1/assistants",
    "/v1/audio",
    "/v1/batches",
    "/v1/completions",
    "/v1/containers",
    "/v1/conversations",
    "/v1/files",
    "/v1/fine_tuning",
    "/v1/images",
    "/v1/organization",
    "/v1/realtime",
    "/v1/threads",
    "/v1/uploads",
    "/v1/vector_stores",
    "/v1/videos",
];

/// Sorts a request for this provider's own servers; exact paths only.
pub(super) fn route(method: &str, path: &str) -> Route<'static> {
    match (method, path) {
        ("POST", "/v1/chat/completions") => Route::Billable(&CHAT, None),
        ("POST", "/v1/responses") => Route::Billable(&RESPONSES, None),
        ("POST", "/v1/responses/compact") => Route::Billable(&COMPACT, None),
        ("POST", "/v1/embeddings") => Route::Billable(&EMBEDDINGS, None),
        ("POST", "/v1/responses/input_tokens" | "/v1/moderations")
        | ("GET" | "HEAD", "/v1/models") => Route::Free,
        ("GET", path) if path.starts_with("/v1/models/") => Route::Free,
        (_, path) if UNMETERED.iter().any(|prefix| path.starts_with(prefix)) => Route::Unmetered,
        _ => Route::Unknown,
    }
}

/// How this provider words an error.
pub(super) fn denial(denial: &Denial) -> (StatusCode, Value) {
    let (status, kind, code) = match denial {
        Denial::Ceiling(_) => {
            (StatusCode::PAYMENT_REQUIRED, "insufficient_quota", "insufficient_quota")
        }
        Denial::Malformed(_) => (StatusCode::BAD_REQUEST, "invalid_request_error", denial.code()),
        Denial::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", denial.code()),
        Denial::Unmetered => (StatusCode::FORBIDDEN, "invalid_request_error", denial.code()),
        Denial::Unknown => (StatusCode::NOT_FOUND, "invalid_request_error", denial.code()),
        Denial::Upgrade => (StatusCode::UPGRADE_REQUIRED, "invalid_request_error", denial.code()),
        Denial::Upstream => (StatusCode::BAD_GATEWAY, "server_error", denial.code()),
    };
    (status, error(denial, kind, code))
}

pub(super) fn error(denial: &Denial, kind: &str, code: &str) -> Value {
    json!({ "error": { "message": denial.message(), "type": kind, "param": null, "code": code } })
}

pub(super) fn asked_tier(tier: Option<&str>) -> AskedTier {
    match tier {
        Some("default" | "flex") => AskedTier::Standard,
        _ => AskedTier::Any,
    }
}

/// This provider writes to its cache of its own accord, for longer only where it is asked to.
pub(super) fn cache(retention: Option<&Value>) -> AskedCache {
    retention.map_or(AskedCache::Short, |_| AskedCache::Long)
}

pub(super) const JUDGE: Judge = Judge { of_type: block, of_member: |_| Block::Plain };

/// What a content part or tool is. Tools that the client runs are plain.
fn block(kind: &str) -> Block {
    match kind {
        "input_image" | "image_url" | "computer_screenshot" => Block::Image,
        "input_file" | "file" | "input_audio" | "item_reference" => Block::Opaque,
        "mcp" | "file_search" | "code_interpreter" | "image_generation" => Block::Hosted,
        kind if kind.starts_with("web_search") && !kind.ends_with("_call") => Block::Hosted,
        _ => Block::Plain,
    }
}

#[derive(Deserialize, Default)]
pub(super) struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    cache_write_tokens_details: Option<WriteDetails>,
}

#[derive(Deserialize, Default)]
struct WriteDetails {
    ttl_30m_tokens: Option<u64>,
}

/// Takes the cached parts out of the inclusive `input`, so that the kinds are disjoint.
pub(super) fn disjoint(input: u64, details: Option<InputDetails>, output: u64) -> TokenUsage {
    let details = details.unwrap_or_default();
    let cache_read = details.cached_tokens.unwrap_or(0);
    let cache_write = details.cache_write_tokens.unwrap_or(0);
    // A write whose lifetime is not told is taken at the longer one's price.
    let short = details.cache_write_tokens_details.and_then(|d| d.ttl_30m_tokens).unwrap_or(0);
    TokenUsage {
        input: input.saturating_sub(cache_read).saturating_sub(cache_write),
        cache_read,
        cache_write,
        cache_write_long: cache_write.saturating_sub(short),
        output,
        web_searches: 0,
    }
}

#[derive(Deserialize)]
struct EmbeddingsRequest {
    model: Option<String>,
}

fn inspect_embeddings(members: &Members<'_>) -> Result<Inspection, Malformed> {
    let request: EmbeddingsRequest = members.read()?;
    Ok(Inspection {
        model: request.model.unwrap_or_default(),
        input: InputBound::Tokens(members.text_bound()),
        output: OutputAsk { limit: None, floor: 0, adjust: Adjust::NoOutput, answers: 1, extra: 0 },
        terms: AskedTerms::default(),
        context_at_least: 0,
        limit_field: &[],
        usage: UsageAsk::AsIs,
    })
}

#[derive(Deserialize)]
struct Embeddings {
    model: Option<String>,
    usage: Option<EmbeddingsUsage>,
}

#[derive(Deserialize)]
struct EmbeddingsUsage {
    prompt_tokens: u64,
}

fn read_embeddings(tally: &mut Tally, body: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Embeddings>(body) else {
        return;
    };
    tally.end = End::Said;
    tally.usage.model = answer.model;
    if let Some(usage) = answer.usage {
        tally.usage.tokens.input = usage.prompt_tokens;
        tally.extent = Extent::Whole;
    }
}
