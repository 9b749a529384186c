//! A generation request, as far as its answer depends on it.

use serde_json::Value;

use super::{Mode, Settings, Usage};

/// The interfaces that generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    Responses,
    Chat,
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
    pub(crate) wants_tool: bool,
    pub(crate) usage: Usage,
}

impl Api {
    pub(crate) fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/messages" => Some(Self::Messages),
            "/v1/responses" => Some(Self::Responses),
            "/v1/chat/completions" => Some(Self::Chat),
            _ => None,
        }
    }
}

impl Ask {
    pub(crate) fn read(api: Api, number: u64, request: &Value, settings: &Settings) -> Self {
        let flag = |value: &Value| value.as_bool().unwrap_or_default();
        // No provider bills more output than it was allowed to produce.
        let limits = ["max_tokens", "max_output_tokens", "max_completion_tokens"];
        let limit = limits.into_iter().find_map(|name| request[name].as_u64());
        let output = settings.usage.output.min(limit.unwrap_or(u64::MAX));
        Self {
            api,
            number,
            model: request["model"].as_str().unwrap_or_default().to_owned(),
            stream: flag(&request["stream"]),
            stream_usage: flag(&request["stream_options"]["include_usage"]),
            tools: tool_names(&request["tools"]),
            wants_tool: settings.mode == Mode::ToolLoop,
            usage: Usage { output, ..settings.usage },
        }
    }
}

/// Anthropic and Responses name a tool at the top, Chat Completions one level down.
fn tool_names(list: &Value) -> Vec<String> {
    let name = |tool: &Value| {
        let name = tool["name"].as_str().or_else(|| tool["function"]["name"].as_str());
        name.map(str::to_owned)
    };
    list.as_array().into_iter().flatten().filter_map(name).collect()
}
