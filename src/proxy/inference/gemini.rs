//! Gemini's own API: the model stands in the path, usage in every chunk of a stream.
//!
//! The prompt's count includes what was cached and leaves out what tools brought in; the count of
//! the answer leaves out thoughts, which are billed as output. In a stream all counts are
//! cumulative, so the last value wins. Names are accepted in both of the spellings that the server
//! takes (ProtoJSON), and refused where both stand side by side.

use http::StatusCode;
use kvro_ledger::event::{CallKind, TokenUsage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::census::{Block, Census, Judge};
use super::denial::Denial;
use super::dialect::{Dialect, Inspection, UsageAsk};
use super::members::{Malformed, Members};
use super::route::Route;
use super::tally::{End, Extent, Tally};
use crate::gate::{
    Adjust, AskedCache, AskedTerms, AskedTier, InputBound, OutputAsk, ServedTerms, Speed,
};

const GENERATE: Dialect = Dialect {
    operation: "generate_content",
    kind: CallKind::Turn,
    ceiling: denial,
    inspect,
    read_event,
    read_answer,
};

/// Paths below these cost money that no answer tells, or reach stored data of the account.
const UNMETERED: [&str; 10] = [
    "batches",
    "cachedContents",
    "corpora",
    "dynamic",
    "files",
    "fileSearchStores",
    "generatedFiles",
    "interactions",
    "operations",
    "tunedModels",
];

/// Sorts a request for this provider's own servers; exact paths only.
pub(super) fn route<'p>(method: &str, path: &'p str) -> Route<'p> {
    if path.starts_with("/upload/") {
        return Route::Unmetered;
    }
    let below = path.strip_prefix("/v1beta/").or_else(|| path.strip_prefix("/v1/"));
    let Some(below) = below else { return Route::Unknown };
    let named = below.strip_prefix("models/");
    // The model and what is to be done with it.
    let operation = named.and_then(|named| named.split_once(':'));
    match (method, operation.filter(|(model, _)| is_name(model))) {
        ("POST", Some((model, "generateContent" | "streamGenerateContent"))) => {
            Route::Billable(&GENERATE, Some(model))
        }
        ("POST", Some((_, "countTokens"))) => Route::Free,
        // Embeddings tell no usage; a batch is fetched later.
        (_, Some(_)) => Route::Unmetered,
        ("GET" | "HEAD", None) if below == "models" => Route::Free,
        ("GET", None) if named.is_some_and(is_name) => Route::Free,
        _ if UNMETERED.iter().any(|prefix| below.starts_with(prefix)) => Route::Unmetered,
        _ => Route::Unknown,
    }
}

/// Whether this is a model's name as it is, without an escape that would hide another.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// How this provider words an error.
pub(super) fn denial(denial: &Denial) -> (StatusCode, Value) {
    // 402 has no status of its own among those of google.rpc.Code; its clients do not retry this.
    let (code, status) = match denial {
        Denial::Ceiling(_) => (StatusCode::PAYMENT_REQUIRED, "FAILED_PRECONDITION"),
        Denial::Malformed(_) => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
        Denial::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "INVALID_ARGUMENT"),
        Denial::Unmetered => (StatusCode::FORBIDDEN, "PERMISSION_DENIED"),
        Denial::Unknown => (StatusCode::NOT_FOUND, "NOT_FOUND"),
        Denial::Upgrade => (StatusCode::UPGRADE_REQUIRED, "FAILED_PRECONDITION"),
        Denial::Upstream => (StatusCode::BAD_GATEWAY, "UNAVAILABLE"),
    };
    let error = json!({ "code": code.as_u16(), "message": denial.message(), "status": status });
    (code, json!({ "error": error }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(alias = "generation_config")]
    generation_config: Option<Generation>,
    #[serde(alias = "cached_content")]
    cached_content: Option<Value>,
    tools: Option<Vec<Map<String, Value>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Generation {
    #[serde(alias = "max_output_tokens")]
    max_output_tokens: Option<u64>,
    #[serde(alias = "candidate_count")]
    candidate_count: Option<u64>,
}

fn inspect(members: &Members<'_>) -> Result<Inspection, Malformed> {
    let request: Request = members.read()?;
    let census = Census::take(members, JUDGE)?;
    let limit_field = limit_field(members)?;
    let input = input_bound(members, &request, &census);
    let generation = request.generation_config.unwrap_or_default();
    Ok(Inspection {
        model: String::new(),
        input,
        output: OutputAsk {
            // Thoughts count against it as well (seen: googleapis/python-genai#2062).
            limit: generation.max_output_tokens,
            floor: 0,
            adjust: Adjust::Allowed,
            answers: generation.candidate_count.unwrap_or(1).max(1),
            extra: 0,
        },
        terms: AskedTerms {
            tier: AskedTier::Any,
            speed: Speed::Standard,
            // What it caches of its own accord costs nothing to write.
            cache: AskedCache::Never,
            web_searches: 0,
        },
        context_at_least: census.context_at_least(),
        limit_field,
        usage: UsageAsk::AsIs,
    })
}

/// The limit in the spelling that the request has for what is there already.
fn limit_field(members: &Members<'_>) -> Result<&'static [&'static str], Malformed> {
    let (outer, is_snake) = match members.value("generation_config") {
        Some(outer) => (Some(outer), true),
        None => (members.value("generationConfig"), false),
    };
    let is_inner_snake = match outer.filter(|outer| *outer != "null") {
        // A name that stands twice in it is refused here.
        Some(outer) => Members::parse(outer.as_bytes())?.value("max_output_tokens").is_some(),
        None => false,
    };
    Ok(match (is_snake, is_inner_snake) {
        (false, false) => &["generationConfig", "maxOutputTokens"],
        (false, true) => &["generationConfig", "max_output_tokens"],
        (true, false) => &["generation_config", "maxOutputTokens"],
        (true, true) => &["generation_config", "max_output_tokens"],
    })
}

const JUDGE: Judge = Judge {
    of_type: |_| Block::Plain,
    // Pictures, films, sound and papers alike: how many tokens is seen only by looking into them.
    of_member: |name| match name {
        "inlineData" | "inline_data" | "fileData" | "file_data" => Block::Opaque,
        _ => Block::Plain,
    },
};

/// The most input that the call can be billed for.
fn input_bound(members: &Members<'_>, request: &Request, census: &Census) -> InputBound {
    let is_own = |name: &String| name == "functionDeclarations" || name == "function_declarations";
    if !request.tools.iter().flatten().flat_map(Map::keys).all(is_own) {
        return InputBound::Unbounded("a tool run by the provider");
    }
    if census.opaque > 0 || request.cached_content.is_some() {
        return InputBound::Windows(1);
    }
    InputBound::Tokens(members.text_bound())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    candidates: Vec<Candidate>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Counts>,
    model_version: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Counts {
    prompt_token_count: u64,
    cached_content_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
    tool_use_prompt_token_count: u64,
    traffic_type: Option<String>,
}

fn read_event(tally: &mut Tally, data: &[u8]) {
    if let Ok(answer) = serde_json::from_slice(data) {
        read(tally, answer);
    }
}

/// A stream that was not asked for as events is one array of what they would be.
fn read_answer(tally: &mut Tally, body: &[u8]) {
    let answers = serde_json::from_slice::<Vec<Answer>>(body)
        .or_else(|_| serde_json::from_slice(body).map(|answer| vec![answer]));
    for answer in answers.into_iter().flatten() {
        read(tally, answer);
    }
}

fn read(tally: &mut Tally, answer: Answer) {
    let Answer { candidates, prompt_feedback, usage_metadata, model_version, error } = answer;
    let is_finished = candidates.iter().any(|candidate| candidate.finish_reason.is_some());
    let is_blocked = prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some());
    if is_finished || is_blocked || error.is_some() {
        tally.end = End::Said;
    }
    let usage = &mut tally.usage;
    usage.model = model_version.or_else(|| usage.model.take());
    if let Some(counts) = usage_metadata {
        usage.context_tokens =
            counts.prompt_token_count.saturating_add(counts.tool_use_prompt_token_count);
        usage.tokens = disjoint(&counts);
        usage.terms = ServedTerms { tier: tier(counts.traffic_type), ..ServedTerms::default() };
        if tally.extent == Extent::Nothing {
            tally.extent = Extent::Input;
        }
    }
    if tally.end == End::Said && tally.extent == Extent::Input {
        tally.extent = Extent::Whole;
    }
}

/// The tier that a kind of traffic is priced at; one that is not known has no price.
fn tier(traffic: Option<String>) -> Option<String> {
    let tier = traffic?;
    match tier.as_str() {
        "ON_DEMAND" | "TRAFFIC_TYPE_UNSPECIFIED" => None,
        "ON_DEMAND_PRIORITY" => Some("priority".to_owned()),
        "ON_DEMAND_FLEX" => Some("flex".to_owned()),
        _ => Some(tier),
    }
}

fn disjoint(counts: &Counts) -> TokenUsage {
    let asked = counts.prompt_token_count.saturating_sub(counts.cached_content_token_count);
    TokenUsage {
        input: asked.saturating_add(counts.tool_use_prompt_token_count),
        cache_read: counts.cached_content_token_count.min(counts.prompt_token_count),
        cache_write: 0,
        cache_write_long: 0,
        output: counts.candidates_token_count.saturating_add(counts.thoughts_token_count),
        web_searches: 0,
    }
}
