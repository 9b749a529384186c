//! OpenAI Chat Completions, and the many servers that speak it.
//!
//! A stream tells usage only when asked, in one more chunk without choices; the last report wins.

use kvro_ledger::event::CallKind;
use serde::Deserialize;
use serde_json::Value;

use super::census::Census;
use super::dialect::{Dialect, Inspection, UsageAsk};
use super::members::{Malformed, Members};
use super::openai::{self, IMAGE, InputDetails, JUDGE, asked_tier, cache, disjoint};
use super::tally::{End, Extent, Tally};
use crate::gate::{Adjust, AskedTerms, InputBound, OutputAsk, Speed};

pub(super) const CHAT: Dialect = Dialect {
    operation: "chat",
    kind: CallKind::Turn,
    ceiling: openai::denial,
    inspect,
    read_event,
    read_answer,
};

#[derive(Deserialize)]
struct Request {
    model: Option<String>,
    max_completion_tokens: Option<u64>,
    max_tokens: Option<u64>,
    n: Option<u64>,
    prediction: Option<Value>,
    service_tier: Option<String>,
    prompt_cache_retention: Option<Value>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    web_search_options: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

fn inspect(members: &Members<'_>) -> Result<Inspection, Malformed> {
    let request: Request = members.read()?;
    let census = Census::take(members, JUDGE)?;
    let input = if request.web_search_options.is_some() || census.hosted > 0 {
        InputBound::Unbounded("a tool run by the provider")
    } else if census.opaque > 0 {
        InputBound::Windows(1)
    } else {
        let images = census.images.saturating_mul(IMAGE);
        InputBound::Tokens(members.text_bound().saturating_add(images))
    };
    if request.max_completion_tokens.is_some() && request.max_tokens.is_some() {
        return Err(Malformed::TwoLimits);
    }
    let old_limit = request.max_completion_tokens.is_none() && request.max_tokens.is_some();
    let told = request.stream_options.is_some_and(|options| options.include_usage == Some(true));
    Ok(Inspection {
        model: request.model.unwrap_or_default(),
        input,
        output: OutputAsk {
            limit: request.max_completion_tokens.or(request.max_tokens),
            floor: 0,
            adjust: Adjust::Allowed,
            answers: request.n.unwrap_or(1).max(1),
            // A prediction that is rejected is billed as output.
            extra: request.prediction.map_or(0, |_| members.text_bound()),
        },
        terms: AskedTerms {
            tier: asked_tier(request.service_tier.as_deref()),
            speed: Speed::Standard,
            cache: cache(request.prompt_cache_retention.as_ref()),
            web_searches: 0,
        },
        context_at_least: census.context_at_least(),
        limit_field: if old_limit { &["max_tokens"] } else { &["max_completion_tokens"] },
        // Some servers refuse the option on requests that do not stream.
        usage: if request.stream == Some(true) && !told {
            UsageAsk::Inject
        } else {
            UsageAsk::AsIs
        },
    })
}

/// What asks for usage when it is true.
pub(super) const USAGE_OPTION: [&str; 2] = ["stream_options", "include_usage"];

/// Whether an event's data is the chunk that only tells usage.
pub(crate) fn is_usage_chunk(data: &[u8]) -> bool {
    serde_json::from_slice::<Chunk>(data)
        .is_ok_and(|chunk| chunk.usage.is_some() && chunk.choices.is_some_and(|c| c.is_empty()))
}

#[derive(Deserialize)]
struct Chunk {
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Counts>,
    service_tier: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<InputDetails>,
}

fn read_event(tally: &mut Tally, data: &[u8]) {
    if data == b"[DONE]" {
        end(tally);
        return;
    }
    let Ok(chunk) = serde_json::from_slice::<Chunk>(data) else {
        return;
    };
    let finished = chunk.choices.as_ref().is_some_and(|choices| {
        // The usage chunk comes behind the last choice.
        choices.is_empty() || choices.iter().any(|choice| choice.finish_reason.is_some())
    });
    let error = chunk.error.is_some();
    let told = chunk.usage.is_some();
    read_chunk(tally, chunk, if finished { Extent::Whole } else { Extent::Input });
    if error || (finished && told && tally.end == End::Open) {
        tally.end = End::Said;
    }
}

fn read_answer(tally: &mut Tally, body: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Chunk>(body) else {
        return;
    };
    read_chunk(tally, answer, Extent::Whole);
    tally.end = End::Said;
}

/// A report on a chunk in the middle is final once the stream says that it is over.
fn end(tally: &mut Tally) {
    tally.end = End::Said;
    if tally.extent == Extent::Input {
        tally.extent = Extent::Whole;
    }
}

fn read_chunk(tally: &mut Tally, chunk: Chunk, extent: Extent) {
    let usage = &mut tally.usage;
    usage.model = chunk.model.or_else(|| usage.model.take());
    usage.terms.tier = chunk.service_tier.or_else(|| usage.terms.tier.take());
    if let Some(counts) = chunk.usage {
        let (input, output) = (counts.prompt_tokens, counts.completion_tokens);
        usage.tokens = disjoint(input, counts.prompt_tokens_details, output);
        usage.context_tokens = input;
        if tally.extent != Extent::Whole {
            tally.extent = extent;
        }
    }
}
