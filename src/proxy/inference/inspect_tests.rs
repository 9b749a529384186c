use serde_json::json;

use super::*;
use crate::gate::{Adjust, AskedCache, AskedTier, Speed};
use crate::inference::{Provider, Route};

fn inspect(path: &str, request: &Value) -> Result<Inspection, Malformed> {
    let provider = match path {
        MESSAGES => Provider::Anthropic,
        GEMINI => Provider::Gemini,
        _ => Provider::OpenAi,
    };
    let Route::Billable(dialect, _) = Route::of(provider, "POST", path) else {
        panic!("{path} is not billable")
    };
    (dialect.inspect)(&Members::parse(request.to_string().as_bytes()).unwrap())
}

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const GEMINI: &str = "/v1beta/models/gemini-2.5-pro:generateContent";

/// The bound on text: the bytes and what a provider may put around them.
fn text(request: &Value, more: u64) -> InputBound {
    InputBound::Tokens(request.to_string().len() as u64 + 2_048 + more)
}

#[test]
fn a_plain_request_is_bounded_by_its_bytes_and_its_own_limit() {
    let request = json!({"model": "claude-opus-5-5", "max_tokens": 128_000, "stream": true,
        "thinking": {"type": "adaptive"}, "tools": [{"name": "Bash"}, {"type": "bash_20250124"}],
        "messages": [{"role": "user", "content": "12345678"}]});
    let inspection = inspect(MESSAGES, &request).unwrap();
    assert_eq!(
        inspection,
        Inspection {
            model: "claude-opus-5-5".to_owned(),
            input: text(&request, 0),
            output: OutputAsk {
                limit: Some(128_000),
                floor: 0,
                adjust: Adjust::Allowed,
                answers: 1,
                extra: 0,
            },
            terms: AskedTerms {
                tier: AskedTier::Any,
                speed: Speed::Standard,
                cache: AskedCache::Never,
                web_searches: 0,
            },
            context_at_least: inspection.context_at_least,
            limit_field: &["max_tokens"],
            usage: UsageAsk::AsIs,
        }
    );
}

#[test]
fn pictures_are_bounded_by_the_largest_and_documents_by_the_window() {
    let content = |block: Value| json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "tool_result", "content": [block]}]}]});
    let image = content(json!({"type": "image", "source": {"type": "base64", "data": "AA=="}}));
    assert_eq!(inspect(MESSAGES, &image).unwrap().input, text(&image, 5_000));
    let document = content(json!({"type": "document", "source": {"type": "url", "url": "u"}}));
    assert_eq!(inspect(MESSAGES, &document).unwrap().input, InputBound::Windows(1));
    let image = json!({"model": "m", "input": [{"type": "message", "content": [{"type": "input_image", "image_url": "u"}]}]});
    assert_eq!(inspect(RESPONSES, &image).unwrap().input, text(&image, 50_000));
    let file =
        json!({"model": "m", "input": [{"content": [{"type": "input_file", "file_id": "f"}]}]});
    assert_eq!(inspect(RESPONSES, &file).unwrap().input, InputBound::Windows(1));
}

#[test]
fn what_the_provider_keeps_is_bounded_by_the_window() {
    for (name, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!({"id": "c"})),
        ("prompt", json!({"id": "p"})),
    ] {
        let request = json!({"model": "m", "input": "hi", name: value});
        assert_eq!(inspect(RESPONSES, &request).unwrap().input, InputBound::Windows(1), "{name}");
        let request = json!({"model": "m", "input": "hi", name: null});
        assert_eq!(inspect(RESPONSES, &request).unwrap().input, text(&request, 0), "{name}");
    }
}

#[test]
fn tools_that_the_provider_runs_are_bounded_by_their_uses_or_not_at_all() {
    let bound = |path, request: Value| {
        let inspection = inspect(path, &request).unwrap();
        (inspection.input, inspection.terms.web_searches)
    };
    let hosted = (InputBound::Unbounded("a tool run by the provider"), 0);
    let tools = |tool: Value| json!({"model": "m", "tools": [{"name": "Bash"}, tool]});
    let search = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 8});
    assert_eq!(bound(MESSAGES, tools(search)), (InputBound::Windows(9), 8));
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    assert_eq!(bound(MESSAGES, tools(search)), hosted);
    assert_eq!(bound(MESSAGES, tools(json!({"type": "code_execution_20250825"}))), hosted);
    let servers = json!({"model": "m", "mcp_servers": [{"url": "u"}]});
    assert!(matches!(bound(MESSAGES, servers).0, InputBound::Unbounded(_)));
    let compact =
        json!({"model": "m", "context_management": {"edits": [{"type": "compact_20260112"}]}});
    assert_eq!(bound(MESSAGES, compact), (InputBound::Windows(2), 0));

    let calls = |tool: &str, most: Value| json!({"model": "m", "max_tool_calls": most, "tools": [{"type": "function"}, {"type": tool}]});
    assert_eq!(bound(RESPONSES, calls("web_search", json!(3))), (InputBound::Windows(4), 3));
    assert_eq!(bound(RESPONSES, calls("web_search", Value::Null)), hosted);
    assert_eq!(bound(RESPONSES, calls("code_interpreter", json!(3))), hosted);
    assert_eq!(bound(RESPONSES, calls("mcp", json!(3))), hosted);
    // Tools may stand in the input as well.
    let inside = json!({"model": "m", "max_tool_calls": 3, "tools": [{"type": "web_search"}],
        "input": [{"type": "additional_tools", "tools": [{"type": "mcp"}]}]});
    assert_eq!(bound(RESPONSES, inside), hosted);
    // An earlier search in the history runs nothing.
    let past = json!({"model": "m", "input": [{"type": "web_search_call", "id": "w"}]});
    assert_eq!(bound(RESPONSES, past.clone()), (text(&past, 0), 0));
    assert_eq!(bound(CHAT, json!({"model": "m", "web_search_options": {}})), hosted);
}

#[test]
fn what_the_request_may_be_served_at_is_read_from_it() {
    let terms = |path, request: Value| inspect(path, &request).unwrap().terms;
    let fast = terms(MESSAGES, json!({"speed": "fast", "service_tier": "standard_only"}));
    assert_eq!((fast.speed, fast.tier), (Speed::Fast, AskedTier::Standard));
    let cached = json!({"system": [{"type": "text", "cache_control": {"type": "ephemeral"}}]});
    assert_eq!(terms(MESSAGES, cached).cache, AskedCache::Short);
    for (tier, expected) in [
        (json!("default"), AskedTier::Standard),
        (json!("flex"), AskedTier::Standard),
        (json!("auto"), AskedTier::Any),
        (json!("priority"), AskedTier::Any),
        (Value::Null, AskedTier::Any),
    ] {
        assert_eq!(terms(RESPONSES, json!({"service_tier": tier})).tier, expected, "{tier}");
    }
    assert_eq!(terms(CHAT, json!({})).cache, AskedCache::Short);
    assert_eq!(terms(CHAT, json!({"prompt_cache_retention": "24h"})).cache, AskedCache::Long);
}

#[test]
fn output_is_bounded_over_all_answers_and_kept_valid() {
    let output = |path, request: Value| inspect(path, &request).unwrap().output;
    let thinking =
        json!({"max_tokens": 9_000, "thinking": {"type": "enabled", "budget_tokens": 8_000}});
    assert_eq!(output(MESSAGES, thinking).floor, 8_001);
    let many = output(CHAT, json!({"n": 5, "max_completion_tokens": 7, "max_tokens": null}));
    assert_eq!((many.answers, many.limit), (5, Some(7)));
    assert!(output(CHAT, json!({"prediction": {"type": "content", "content": "x"}})).extra > 0);
    let compact = output("/v1/responses/compact", json!({"model": "m"}));
    assert_eq!((compact.limit, compact.adjust), (None, Adjust::Fixed));
    assert_eq!(output("/v1/embeddings", json!({"model": "m"})).adjust, Adjust::NoOutput);
}

#[test]
fn a_limit_in_two_spellings_is_refused() {
    let both = json!({"max_completion_tokens": 7, "max_tokens": 9});
    assert!(matches!(inspect(CHAT, &both), Err(Malformed::TwoLimits)));
    for both in [
        json!({"generationConfig": {}, "generation_config": {}}),
        json!({"generationConfig": {"maxOutputTokens": 7, "max_output_tokens": 9}}),
    ] {
        assert!(matches!(inspect(GEMINI, &both), Err(Malformed::Json(_))), "{both}");
    }
}

#[test]
fn geminis_limit_is_found_and_set_in_the_spelling_that_is_there() {
    for (request, limit, field) in [
        (json!({}), None, ["generationConfig", "maxOutputTokens"]),
        (json!({"generationConfig": null}), None, ["generationConfig", "maxOutputTokens"]),
        (
            json!({"generationConfig": {"maxOutputTokens": 7}}),
            Some(7),
            ["generationConfig", "maxOutputTokens"],
        ),
        (
            json!({"generationConfig": {"max_output_tokens": 7}}),
            Some(7),
            ["generationConfig", "max_output_tokens"],
        ),
        (
            json!({"generation_config": {"maxOutputTokens": 7}}),
            Some(7),
            ["generation_config", "maxOutputTokens"],
        ),
        (
            json!({"generation_config": {"max_output_tokens": 7}}),
            Some(7),
            ["generation_config", "max_output_tokens"],
        ),
    ] {
        let inspection = inspect(GEMINI, &request).unwrap();
        assert_eq!(
            (inspection.output.limit, inspection.limit_field),
            (limit, &field[..]),
            "{request}"
        );
    }
    let many = json!({"generationConfig": {"candidateCount": 3}});
    assert_eq!(inspect(GEMINI, &many).unwrap().output.answers, 3);
}

#[test]
fn geminis_input_is_bounded_by_what_is_in_it() {
    let content = |part: Value| json!({"contents": [{"role": "user", "parts": [part]}]});
    let own = json!({"contents": [], "tools": [{"functionDeclarations": [{"name": "f"}]}]});
    assert_eq!(inspect(GEMINI, &own).unwrap().input, text(&own, 0));
    for part in ["inlineData", "inline_data", "fileData", "file_data"] {
        let request = content(json!({ part: {"mimeType": "image/png", "data": "AA=="} }));
        assert_eq!(inspect(GEMINI, &request).unwrap().input, InputBound::Windows(1), "{part}");
    }
    for kept in ["cachedContent", "cached_content"] {
        let request = json!({ kept: "cachedContents/1" });
        assert_eq!(inspect(GEMINI, &request).unwrap().input, InputBound::Windows(1), "{kept}");
    }
    for tool in ["googleSearch", "google_search", "urlContext", "codeExecution"] {
        let request = json!({"tools": [{"functionDeclarations": []}, { tool: {} }]});
        let input = inspect(GEMINI, &request).unwrap().input;
        assert!(matches!(input, InputBound::Unbounded(_)), "{tool}");
    }
}

#[test]
fn an_answer_that_is_fetched_later_is_refused() {
    let request = json!({"model": "m", "background": true});
    assert!(matches!(inspect(RESPONSES, &request), Err(Malformed::Background)));
    inspect(RESPONSES, &json!({"model": "m", "background": false})).unwrap();
}

#[test]
fn a_wrong_type_is_malformed_and_null_is_absent() {
    assert!(matches!(inspect(MESSAGES, &json!({"model": 5})), Err(Malformed::Json(_))));
    let bad = json!({"model": "m", "max_tokens": "many"});
    assert!(matches!(inspect(CHAT, &bad), Err(Malformed::Json(_))));
    let nulls = json!({"model": null, "max_tokens": null, "tools": null, "service_tier": null});
    for path in [MESSAGES, CHAT, RESPONSES] {
        assert_eq!(inspect(path, &nulls).unwrap().model, "");
    }
}
