//! The OpenAI Chat Completions API's answers.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::Usage;
use super::answer::Part;
use super::ask::{Ask, Wants};

pub(crate) fn whole(ask: &Ask, text: &str) -> Vec<Part> {
    let message = match tool_call(ask) {
        Some(call) => json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        None => json!({"role": "assistant", "content": text}),
    };
    let mut body = base(ask, "chat.completion");
    body["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish(ask)}]);
    body["usage"] = numbers(ask.usage);
    vec![Part::json(&body, ask.usage)]
}

pub(crate) fn stream(ask: &Ask, text: &str) -> Vec<Part> {
    let chunk = |choices: Value| {
        let mut chunk = base(ask, "chat.completion.chunk");
        chunk["choices"] = choices;
        if ask.stream_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    };
    let silent = |chunk: &Value| Part::event(None, chunk, Usage::default());
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));

    let mut parts = vec![silent(&delta(json!({"role": "assistant", "content": ""})))];
    match tool_call(ask) {
        Some(mut call) => {
            call["index"] = json!(0);
            parts.push(silent(&delta(json!({"tool_calls": [call]}))));
        }
        None => parts
            .extend(text.split_inclusive(' ').map(|word| silent(&delta(json!({"content": word}))))),
    }
    let last = json!([{"index": 0, "delta": {}, "finish_reason": finish(ask)}]);
    parts.push(silent(&chunk(last)));
    let said = if ask.stream_usage { ask.usage } else { Usage::default() };
    if ask.stream_usage {
        let mut closing = chunk(json!([]));
        closing["usage"] = numbers(ask.usage);
        parts.push(Part::event(None, &closing, said));
    }
    parts.push(Part { bytes: Bytes::from_static(b"data: [DONE]\n\n"), said });
    parts
}

fn tool_call(ask: &Ask) -> Option<Value> {
    let shells = ["bash", "shell", "exec_command", "run_shell_command"];
    let name = ask.tools.iter().find(|name| shells.contains(&name.to_lowercase().as_str()))?;
    let arguments = json!({"command": "echo once more"}).to_string();
    (ask.wants == Wants::Tool).then(|| {
        json!({"id": format!("call_{:08}", ask.number), "type": "function",
               "function": {"name": name, "arguments": arguments}})
    })
}

fn finish(ask: &Ask) -> &'static str {
    if tool_call(ask).is_some() { "tool_calls" } else { "stop" }
}

fn base(ask: &Ask, object: &str) -> Value {
    json!({"id": format!("chatcmpl-{:08}", ask.number), "object": object,
           "created": 1_700_000_000, "model": ask.model})
}

fn numbers(usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.output / 2},
    })
}
