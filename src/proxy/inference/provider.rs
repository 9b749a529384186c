//! The providers by name, and which servers are theirs.
//!
//! A server that is listed here, or that the policy maps to a provider, is intercepted; every other
//! one is only tunnelled.

use std::fmt;
use std::str::FromStr;

/// Whose habits a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    Anthropic,
    Gemini,
    OpenAi,
}

/// Every provider that the door can meter.
const ALL: [Provider; 3] = [Provider::Anthropic, Provider::Gemini, Provider::OpenAi];

impl Provider {
    /// The name used in policies and events, which is OpenTelemetry's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Gemini => "gcp.gemini",
            Self::OpenAi => "openai",
        }
    }

    /// The servers that are this provider's own, in lower case.
    const fn servers(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &["api.anthropic.com"],
            Self::Gemini => &["generativelanguage.googleapis.com"],
            Self::OpenAi => &["api.openai.com", "eu.api.openai.com", "us.api.openai.com"],
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a provider is one of anthropic, gcp.gemini, openai")]
pub struct UnknownProvider;

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        ALL.into_iter().find(|provider| provider.name() == text).ok_or(UnknownProvider)
    }
}

/// The provider whose own server `name` is; `name` is in lower case without a trailing dot.
#[must_use]
pub fn provider_of(name: &str) -> Option<Provider> {
    ALL.into_iter().find(|provider| provider.servers().contains(&name))
}

/// Every server that is some provider's own.
pub fn servers() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().flat_map(|provider| provider.servers().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_server_names_are_a_providers() {
        assert_eq!(provider_of("api.anthropic.com"), Some(Provider::Anthropic));
        assert_eq!(provider_of("api.openai.com"), Some(Provider::OpenAi));
        for name in ["anthropic.com", "xapi.anthropic.com", "api.anthropic.com.evil.test"] {
            assert_eq!(provider_of(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_provider_reads_back_by_its_name() {
        for provider in ALL {
            assert_eq!(provider.name().parse(), Ok(provider));
        }
        assert_eq!("Anthropic".parse::<Provider>(), Err(UnknownProvider));
    }
}
