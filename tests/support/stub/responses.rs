//! The OpenAI Responses API's answers.

use serde_json::{Value, json};

use super::Usage;
use super::answer::Part;
use super::ask::{Ask, Wants};

pub(crate) fn whole(ask: &Ask, text: &str) -> Vec<Part> {
    let usage = ask.usage;
    vec![Part::json(&response(ask, "completed", &[item(ask, text)], Some(usage)), usage)]
}

pub(crate) fn stream(ask: &Ask, text: &str) -> Vec<Part> {
    let usage = ask.usage;
    let item = item(ask, text);
    let mut events = vec![
        json!({"type": "response.created", "response": response(ask, "in_progress", &[], None)}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": opened(&item)}),
    ];
    events.extend(deltas(&item, text));
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    let last = response(ask, "completed", &[item], Some(usage));
    events.push(json!({"type": "response.completed", "response": last}));

    let count = events.len();
    let parts = events.into_iter().enumerate().map(|(index, mut event)| {
        event["sequence_number"] = json!(index);
        // Nothing is said about usage before the very end.
        let said = if index + 1 == count { usage } else { Usage::default() };
        Part::event(event["type"].as_str(), &event, said)
    });
    parts.collect()
}

pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        402 | 429 => "insufficient_quota",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
}

/// A call of the client's shell tool where one is wanted, else the text.
fn item(ask: &Ask, text: &str) -> Value {
    let known = |name: &str| ask.tools.iter().any(|tool| tool == name);
    let call = format!("call_{:08}", ask.number);
    let function = |name: &str, arguments: &Value| {
        let id = format!("fc_{:08}", ask.number);
        json!({"type": "function_call", "id": id, "call_id": call, "name": name,
               "arguments": arguments.to_string(), "status": "completed"})
    };
    if ask.wants != Wants::Tool {
        let id = format!("msg_{:08}", ask.number);
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        json!({"type": "message", "id": id, "status": "completed", "role": "assistant",
               "content": content})
    } else if known("exec_command") {
        function("exec_command", &json!({"cmd": "echo once more"}))
    } else if known("shell") {
        function("shell", &json!({"command": ["echo", "once more"]}))
    } else {
        // Codex's newest shape: tools travel inside `input` and are called as code.
        json!({"type": "custom_tool_call", "id": format!("ctc_{:08}", ask.number),
               "call_id": call, "namespace": "functions", "name": "exec",
               "input": "text('once more')", "status": "completed"})
    }
}

/// An item as it is announced: nothing in it yet.
fn opened(item: &Value) -> Value {
    let mut opened = item.clone();
    opened["status"] = json!("in_progress");
    match item["type"].as_str() {
        Some("message") => opened["content"] = json!([]),
        Some("function_call") => opened["arguments"] = json!(""),
        _ => opened["input"] = json!(""),
    }
    opened
}

fn deltas(item: &Value, text: &str) -> Vec<Value> {
    let at = json!({"item_id": item["id"], "output_index": 0});
    let event = |kind: &str, rest: Value| {
        let mut event = at.clone();
        event["type"] = json!(kind);
        for (key, value) in rest.as_object().into_iter().flatten() {
            event[key] = value.clone();
        }
        event
    };
    match item["type"].as_str() {
        Some("message") => {
            let empty = json!({"type": "output_text", "text": "", "annotations": []});
            let full = json!({"type": "output_text", "text": text, "annotations": []});
            let mut events = vec![event(
                "response.content_part.added",
                json!({"content_index": 0, "part": empty}),
            )];
            events.extend(text.split_inclusive(' ').map(|word| {
                event("response.output_text.delta", json!({"content_index": 0, "delta": word}))
            }));
            events.push(event(
                "response.output_text.done",
                json!({"content_index": 0, "text": text}),
            ));
            events.push(event(
                "response.content_part.done",
                json!({"content_index": 0, "part": full}),
            ));
            events
        }
        Some("function_call") => vec![event(
            "response.function_call_arguments.delta",
            json!({"delta": item["arguments"]}),
        )],
        _ => vec![event("response.custom_tool_call_input.delta", json!({"delta": item["input"]}))],
    }
}

fn response(ask: &Ask, status: &str, output: &[Value], usage: Option<Usage>) -> Value {
    json!({
        "id": format!("resp_{:08}", ask.number),
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": ask.model,
        "output": output,
        "error": null,
        "incomplete_details": null,
        "parallel_tool_calls": false,
        "tools": [],
        "metadata": {},
        "service_tier": "default",
        "usage": usage.map(|usage| json!({
            "input_tokens": usage.input + usage.cache_read + usage.cache_write,
            "input_tokens_details": {
                "cached_tokens": usage.cache_read,
                "cache_write_tokens": usage.cache_write,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.output / 2},
            "total_tokens":
                usage.input + usage.cache_read + usage.cache_write + usage.output,
        })),
    })
}
