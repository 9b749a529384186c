//! Gemini's answers.

use serde_json::{Value, json};

use super::Usage;
use super::answer::Part;
use super::ask::{Ask, Wants};

/// What the client's question before each turn, which model is to answer it, is content with.
const CHOICE: &str = r#"{"reasoning":"short","model_choice":"flash","complexity_reasoning":"short","complexity_score":10}"#;

pub(crate) fn whole(ask: &Ask, text: &str) -> Vec<Part> {
    let text = if ask.wants == Wants::Json { CHOICE } else { text };
    let mut answer = chunk(ask, &part(ask, text), ask.usage);
    answer["candidates"][0]["finishReason"] = json!("STOP");
    vec![Part::json(&answer, ask.usage)]
}

pub(crate) fn stream(ask: &Ask, text: &str) -> Vec<Part> {
    // Cumulative: the first chunk has the input side, the last one everything.
    let opening = Usage { output: 0, ..ask.usage };
    let first = chunk(ask, &json!({"text": ""}), opening);
    let mut last = chunk(ask, &part(ask, text), ask.usage);
    last["candidates"][0]["finishReason"] = json!("STOP");
    vec![Part::event(None, &first, opening), Part::event(None, &last, ask.usage)]
}

pub(crate) fn error(status: u16, message: &str) -> Value {
    json!({"error": {"code": status, "message": message, "status": "UNKNOWN"}})
}

/// A call of the client's shell tool, or the text where the client has none.
fn part(ask: &Ask, text: &str) -> Value {
    let shell = ask.tools.iter().find(|name| *name == "run_shell_command");
    match shell.filter(|_| ask.wants == Wants::Tool) {
        Some(name) => json!({"functionCall": {"name": name, "args": {
            "command": "echo once more", "description": "Say it again",
        }}}),
        None => json!({"text": text}),
    }
}

/// Thoughts are a part of the output that no candidate counts.
fn chunk(ask: &Ask, part: &Value, usage: Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    let thoughts = usage.output / 2;
    json!({
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}],
        "usageMetadata": {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": usage.cache_read,
            "candidatesTokenCount": usage.output - thoughts,
            "thoughtsTokenCount": thoughts,
            "totalTokenCount": prompt + usage.output,
        },
        "modelVersion": ask.model,
        "responseId": format!("answer-{:08}", ask.number),
    })
}
