//! OpenAI Responses: usage stands only in the answer's last event.
//!
//! An answer that is cut by its limit or by a filter is billed like a complete one.

use http::StatusCode;
use kvro_ledger::event::CallKind;
use serde::Deserialize;
use serde_json::Value;

use super::census::Census;
use super::denial::Denial;
use super::dialect::{Dialect, Inspection, UsageAsk};
use super::members::{Malformed, Members};
use super::openai::{self, IMAGE, InputDetails, JUDGE, asked_tier, cache, disjoint};
use super::tally::{End, Extent, Tally};
use crate::gate::{Adjust, AskedTerms, Fees, InputBound, OutputAsk, Speed};

pub(super) const RESPONSES: Dialect =
    Dialect { operation: "chat", kind: CallKind::Turn, ceiling, inspect, read_event, read_answer };

/// Rewrites a long context into a short one. It takes no limit of its own.
pub(super) const COMPACT: Dialect = Dialect {
    operation: "compact",
    kind: CallKind::Turn,
    ceiling,
    inspect: inspect_compact,
    read_event,
    read_answer,
};

/// This API's clients retry every status but 400 for a while.
fn ceiling(denial: &Denial) -> (StatusCode, Value) {
    let body = openai::error(denial, "invalid_request_error", "budget_exceeded");
    (StatusCode::BAD_REQUEST, body)
}

/// The least limit that the provider accepts.
const LEAST_OUTPUT: u64 = 16;

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    max_output_tokens: Option<u64>,
    max_tool_calls: Option<u64>,
    previous_response_id: Option<Value>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    service_tier: Option<String>,
    prompt_cache_retention: Option<Value>,
    background: Option<bool>,
    tools: Option<Vec<Tool>>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
}

fn inspect(members: &Members<'_>) -> Result<Inspection, Malformed> {
    let request: Request = members.read()?;
    if request.background == Some(true) {
        return Err(Malformed::Background);
    }
    let census = Census::take(members, JUDGE)?;
    let (input, web_searches) = input_bound(members, &request, &census);
    Ok(Inspection {
        model: request.model.unwrap_or_default(),
        input,
        output: OutputAsk {
            limit: request.max_output_tokens,
            floor: LEAST_OUTPUT,
            adjust: Adjust::Allowed,
            answers: 1,
            extra: 0,
        },
        terms: AskedTerms {
            tier: asked_tier(request.service_tier.as_deref()),
            speed: Speed::Standard,
            cache: cache(request.prompt_cache_retention.as_ref()),
            web_searches,
        },
        context_at_least: census.context_at_least(),
        limit_field: &["max_output_tokens"],
        usage: UsageAsk::AsIs,
    })
}

fn inspect_compact(members: &Members<'_>) -> Result<Inspection, Malformed> {
    let inspection = inspect(members)?;
    let output = OutputAsk { limit: None, adjust: Adjust::Fixed, ..inspection.output };
    Ok(Inspection { output, ..inspection })
}

/// The most input that the call can be billed for, and the searches it may run.
fn input_bound(members: &Members<'_>, request: &Request, census: &Census) -> (InputBound, u64) {
    if census.hosted > 0 {
        let listed =
            |tool: &Tool| tool.kind.as_deref().is_some_and(|k| k.starts_with("web_search"));
        let searches = request.tools.iter().flatten().filter(|tool| listed(tool)).count() as u64;
        return match request.max_tool_calls {
            Some(calls) if searches == census.hosted => {
                (InputBound::Windows(calls.saturating_add(1)), calls)
            }
            _ => (InputBound::Unbounded("a tool run by the provider"), 0),
        };
    }
    let stored = [&request.previous_response_id, &request.conversation, &request.prompt];
    if census.opaque > 0 || stored.iter().any(|value| value.is_some()) {
        return (InputBound::Windows(1), 0);
    }
    let images = census.images.saturating_mul(IMAGE);
    (InputBound::Tokens(members.text_bound().saturating_add(images)), 0)
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    response: Option<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    model: Option<String>,
    service_tier: Option<String>,
    usage: Option<Counts>,
    output: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    input_tokens: u64,
    input_tokens_details: Option<InputDetails>,
    output_tokens: u64,
}

fn read_event(tally: &mut Tally, data: &[u8]) {
    let Ok(event) = serde_json::from_slice::<Event>(data) else {
        return;
    };
    match event.kind.as_str() {
        "response.created" | "response.in_progress" => {
            tally.usage.model = event.response.and_then(|answer| answer.model);
        }
        "response.completed" | "response.incomplete" | "response.failed" => {
            tally.end = End::Said;
            if let Some(answer) = event.response {
                read(tally, answer);
            }
        }
        "error" => tally.end = End::Said,
        _ => {}
    }
}

fn read_answer(tally: &mut Tally, body: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        return;
    };
    tally.end = End::Said;
    read(tally, answer);
}

fn read(tally: &mut Tally, answer: Answer) {
    let usage = &mut tally.usage;
    usage.model = answer.model.or_else(|| usage.model.take());
    usage.terms.tier = answer.service_tier;
    let Some(counts) = answer.usage else { return };
    usage.tokens = disjoint(counts.input_tokens, counts.input_tokens_details, counts.output_tokens);
    usage.context_tokens = counts.input_tokens;
    for item in answer.output.into_iter().flatten() {
        match item.kind.as_deref() {
            Some("web_search_call") => usage.tokens.web_searches += 1,
            Some("file_search_call" | "code_interpreter_call" | "image_generation_call") => {
                usage.fees = Fees::Unlisted;
            }
            _ => {}
        }
    }
    tally.extent = Extent::Whole;
}
