//! A generation request, as far as its answer depends on it.

use serde_json::Value;

use super::{Mode, Settings, Usage};

/// The interfaces that generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    Responses,
    Chat,
    /// Gemini's, whose path names the model and whether the answer is a stream.
    Generate,
}

/// What an answer is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Text,
    Json,
    /// A call of the shell tool, where there is one.
    Tool,
}

/// What is asked for, and what the answer will say it used.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    /// Counts the accepted generations from 1.
    pub(crate) number: u64,
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// `stream_options.include_usage` of Chat Completions.
    pub(crate) stream_usage: bool,
    /// The names of the tools on offer.
    pub(crate) tools: Vec<String>,
    pub(crate) wants: Wants,
    pub(crate) usage: Usage,
}

impl Api {
    pub(crate) fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/messages" => Some(Self::Messages),
            "/v1/responses" => Some(Self::Responses),
            "/v1/chat/completions" => Some(Self::Chat),
            path if generation(path).is_some() => Some(Self::Generate),
            _ => None,
        }
    }
}

impl Ask {
    pub(crate) fn read(
        api: Api,
        path: &str,
        number: u64,
        request: &Value,
        settings: &Settings,
    ) -> Self {
        let (model, stream) = generation(path)
            .unwrap_or_else(|| (request["model"].as_str().unwrap_or_default(), false));
        let flag = |value: &Value| value.as_bool().unwrap_or_default();
        // No provider bills more output than it was allowed to produce.
        let limits = ["max_tokens", "max_output_tokens", "max_completion_tokens"];
        let limit = limits.into_iter().find_map(|name| request[name].as_u64());
        let limit = limit.or_else(|| request["generationConfig"]["maxOutputTokens"].as_u64());
        let output = settings.usage.output.min(limit.unwrap_or(u64::MAX));
        let is_json = request["generationConfig"]["responseMimeType"] == "application/json";
        let wants = match settings.mode {
            _ if is_json => Wants::Json,
            Mode::ToolLoop => Wants::Tool,
            Mode::Text | Mode::Slow(_) | Mode::Status(_) => Wants::Text,
        };
        let Usage { input, cache_read, cache_write, .. } = settings.usage;
        Self {
            api,
            number,
            model: model.to_owned(),
            stream: stream || flag(&request["stream"]),
            stream_usage: flag(&request["stream_options"]["include_usage"]),
            tools: tool_names(&request["tools"]),
            wants,
            usage: match api {
                // Nothing is billed for a write to its cache.
                Api::Generate => {
                    Usage { input: input + cache_write, cache_write: 0, output, cache_read }
                }
                Api::Messages | Api::Responses | Api::Chat => Usage { output, ..settings.usage },
            },
        }
    }
}

/// The model of a Gemini path, and whether its answer is a stream.
fn generation(path: &str) -> Option<(&str, bool)> {
    let (model, operation) = path.strip_prefix("/v1beta/models/")?.split_once(':')?;
    match operation {
        "generateContent" => Some((model, false)),
        "streamGenerateContent" => Some((model, true)),
        _ => None,
    }
}

/// Anthropic and Responses name a tool at the top, Chat Completions one level down, Gemini in lists.
fn tool_names(list: &Value) -> Vec<String> {
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let tools = each(list).into_iter().flat_map(|tool| {
        let declared = each(&tool["functionDeclarations"]);
        if declared.is_empty() { vec![tool] } else { declared }
    });
    let name = |tool: Value| {
        let name = tool["name"].as_str().or_else(|| tool["function"]["name"].as_str());
        name.map(str::to_owned)
    };
    tools.filter_map(name).collect()
}
