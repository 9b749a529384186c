//! The Anthropic Messages API's answers.

use serde_json::{Value, json};

use super::Usage;
use super::answer::Part;
use super::ask::{Ask, Wants};

/// A call of the client's shell tool, or the text where the client has none.
pub(crate) fn blocks(ask: &Ask, text: &str) -> (Vec<Value>, &'static str) {
    let shell = ask.tools.iter().find(|name| name.eq_ignore_ascii_case("bash"));
    match shell.filter(|_| ask.wants == Wants::Tool) {
        Some(name) => {
            let input = json!({"command": "echo once more", "description": "Say it again"});
            let id = format!("toolu_{:08}", ask.number);
            (vec![json!({"type": "tool_use", "id": id, "name": name, "input": input})], "tool_use")
        }
        None => (vec![json!({"type": "text", "text": text})], "end_turn"),
    }
}

pub(crate) fn whole(ask: &Ask, text: &str) -> Vec<Part> {
    let (content, stop) = blocks(ask, text);
    let mut message = message(ask, ask.usage);
    message["content"] = Value::Array(content);
    message["stop_reason"] = json!(stop);
    vec![Part::json(&message, ask.usage)]
}

pub(crate) fn stream(ask: &Ask, text: &str) -> Vec<Part> {
    let usage = ask.usage;
    // The first event has the input side and one token of output; the last is cumulative.
    let opening = Usage { output: usage.output.min(1), ..usage };
    let mut parts = vec![
        event(&json!({"type": "message_start", "message": message(ask, opening)}), opening),
        event(&json!({"type": "ping"}), opening),
    ];
    let (content, stop) = blocks(ask, text);
    for (index, block) in content.iter().enumerate() {
        let (start, deltas) = pieces(block);
        parts.push(event(
            &json!({"type": "content_block_start", "index": index, "content_block": start}),
            opening,
        ));
        parts.extend(deltas.into_iter().map(|delta| {
            event(&json!({"type": "content_block_delta", "index": index, "delta": delta}), opening)
        }));
        parts.push(event(&json!({"type": "content_block_stop", "index": index}), opening));
    }
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    let last = json!({"type": "message_delta", "delta": delta, "usage": {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }});
    parts.push(event(&last, usage));
    parts.push(event(&json!({"type": "message_stop"}), usage));
    parts
}

pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let error = json!({"type": kind, "message": message});
    json!({"type": "error", "error": error, "request_id": "req_stub"})
}

fn message(ask: &Ask, usage: Usage) -> Value {
    let long = usage.cache_write / 4;
    json!({
        "id": format!("msg_{:08}", ask.number),
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.input,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": usage.cache_write - long,
                "ephemeral_1h_input_tokens": long,
            },
            "output_tokens": usage.output,
            "service_tier": "standard",
        },
    })
}

/// A block as it is announced, and the deltas that fill it.
fn pieces(block: &Value) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    if let Some(text) = block["text"].as_str() {
        start["text"] = json!("");
        let words = text.split_inclusive(' ');
        (start, words.map(|word| json!({"type": "text_delta", "text": word})).collect())
    } else {
        start["input"] = json!({});
        let input = block["input"].to_string();
        (start, vec![json!({"type": "input_json_delta", "partial_json": input})])
    }
}

fn event(data: &Value, said: Usage) -> Part {
    Part::event(data["type"].as_str(), data, said)
}
