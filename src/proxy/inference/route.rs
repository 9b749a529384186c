//! What a request to a provider's server is, by exact method and path.
//!
//! Other spellings of a path that a provider might accept (a double slash, another case) are
//! unknown and do not leave, so nothing is billed under a name that is not metered.

use super::dialect::Dialect;
use super::{Provider, anthropic, gemini, openai};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'p> {
    /// Held, admitted, metered and settled; with the model, where the path names it and the request
    /// does not.
    Billable(&'static Dialect, Option<&'p str>),
    /// Passed as it is: costs nothing.
    Free,
    /// Refused: costs money that no answer tells, or gives more than generation.
    Unmetered,
    /// Answered here: telemetry, and whatever else a provider's server has.
    Unknown,
}

impl<'p> Route<'p> {
    pub(crate) fn of(provider: Provider, method: &str, path: &'p str) -> Self {
        match provider {
            Provider::Anthropic => anthropic::route(method, path),
            Provider::Gemini => gemini::route(method, path),
            Provider::OpenAi => openai::route(method, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(provider: Provider, method: &str, path: &str) -> &'static str {
        match Route::of(provider, method, path) {
            Route::Billable(dialect, _) => dialect.operation,
            Route::Free => "free",
            Route::Unmetered => "unmetered",
            Route::Unknown => "unknown",
        }
    }

    #[test]
    fn only_exact_methods_and_paths_leave() {
        use Provider::{Anthropic, Gemini, OpenAi};
        for (provider, method, path, expected) in [
            (Anthropic, "POST", "/v1/messages", "chat"),
            (Anthropic, "POST", "/v1/messages/count_tokens", "free"),
            (Anthropic, "GET", "/v1/models", "free"),
            (Anthropic, "GET", "/v1/models/claude-opus-5-5", "free"),
            (Anthropic, "POST", "/v1/messages/batches", "unmetered"),
            (Anthropic, "GET", "/v1/files/x/content", "unmetered"),
            (Anthropic, "GET", "/v1/organizations/me/api_keys", "unmetered"),
            (Anthropic, "GET", "/v1/messages", "unknown"),
            (Anthropic, "POST", "/v1//messages", "unknown"),
            (Anthropic, "POST", "/V1/Messages", "unknown"),
            (Anthropic, "POST", "/v1/messages/", "unknown"),
            (Anthropic, "POST", "/v1/%6dessages", "unknown"),
            (Anthropic, "POST", "/v1/chat/completions", "unknown"),
            (Anthropic, "POST", "/api/event_logging/batch", "unknown"),
            (Anthropic, "HEAD", "/api/hello", "unknown"),
            (Gemini, "POST", "/v1beta/models/gemini-2.5-pro:generateContent", "generate_content"),
            (Gemini, "POST", "/v1/models/g:streamGenerateContent", "generate_content"),
            (Gemini, "POST", "/v1beta/models/gemini-2.5-pro:countTokens", "free"),
            (Gemini, "GET", "/v1beta/models", "free"),
            (Gemini, "GET", "/v1beta/models/gemini-2.5-pro", "free"),
            (Gemini, "POST", "/v1beta/models/g:batchGenerateContent", "unmetered"),
            (Gemini, "POST", "/v1beta/models/g:embedContent", "unmetered"),
            (Gemini, "GET", "/v1beta/models/g:generateContent", "unmetered"),
            (Gemini, "POST", "/v1beta/cachedContents", "unmetered"),
            (Gemini, "POST", "/upload/v1beta/files", "unmetered"),
            (Gemini, "POST", "/v1beta/models/g%2e:generateContent", "unknown"),
            (Gemini, "POST", "/v1beta/models/a/b:generateContent", "unknown"),
            (Gemini, "POST", "/v1beta/models/:generateContent", "unknown"),
            (Gemini, "POST", "/v1beta//models/g:generateContent", "unknown"),
            (Gemini, "POST", "/v1alpha/models/g:generateContent", "unknown"),
            (Gemini, "POST", "/v1beta/models/g:GenerateContent", "unmetered"),
            (OpenAi, "POST", "/v1/chat/completions", "chat"),
            (OpenAi, "POST", "/v1/responses", "chat"),
            (OpenAi, "POST", "/v1/responses/compact", "compact"),
            (OpenAi, "POST", "/v1/embeddings", "embeddings"),
            (OpenAi, "POST", "/v1/responses/input_tokens", "free"),
            (OpenAi, "GET", "/v1/models", "free"),
            (OpenAi, "POST", "/v1/moderations", "free"),
            (OpenAi, "POST", "/v1/batches", "unmetered"),
            (OpenAi, "POST", "/v1/realtime/sessions", "unmetered"),
            (OpenAi, "POST", "/v1/images/generations", "unmetered"),
            (OpenAi, "GET", "/v1/organization/costs", "unmetered"),
            (OpenAi, "GET", "/v1/responses/resp_1", "unknown"),
            (OpenAi, "POST", "/v1/messages", "unknown"),
        ] {
            assert_eq!(operation(provider, method, path), expected, "{method} {path}");
        }
    }
}
