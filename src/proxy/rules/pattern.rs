//! Server rules as a person types them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::name::{NameError, Server, ServerError, ServerName, split_port};

/// The ports of a rule that names none.
pub(super) const WEB_PORTS: [u16; 2] = [80, 443];

/// `api.example.com`, `*.example.com` (names below it, not itself), an address; each may carry
/// `:port`, else it means ports 80 and 443 where it allows and every port where it denies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    scope: Scope,
    port: Option<u16>,
    typed: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Exactly(ServerName),
    Below(ServerName),
}

/// A text that is not a server rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a server rule is empty")]
    Empty,
    #[error("a server rule is a name, not a URL: leave out the scheme and what follows the name")]
    Url,
    #[error("a server rule has no user and no path")]
    NotAName,
    #[error("a lone `*` would allow every server")]
    Everything,
    #[error("`*` stands only for whole labels in front of a name, as in `*.example.com`")]
    Star,
    #[error("one label is no server: a whole top-level domain cannot be listed")]
    TopLevel,
    #[error("a port is a number from 1 to 65535")]
    Port,
    #[error(transparent)]
    Name(NameError),
}

impl HostPattern {
    /// The name, or for `*.name` the name behind the star.
    #[must_use]
    pub const fn base(&self) -> &ServerName {
        match &self.scope {
            Scope::Exactly(name) | Scope::Below(name) => name,
        }
    }

    /// The port, where the rule names one.
    #[must_use]
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    #[must_use]
    pub fn covers_name(&self, name: &ServerName) -> bool {
        match &self.scope {
            Scope::Exactly(own) => own == name,
            Scope::Below(parent) => name.is_below(parent),
        }
    }

    pub(super) fn allows(&self, server: &Server) -> bool {
        self.covers_name(&server.name) && self.ports().contains(&server.port)
    }

    pub(super) fn denies(&self, server: &Server) -> bool {
        self.covers_name(&server.name) && self.port.is_none_or(|port| port == server.port)
    }

    /// The ports that the rule opens where it allows.
    pub(super) fn ports(&self) -> &[u16] {
        self.port.as_ref().map_or(&WEB_PORTS, std::slice::from_ref)
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.contains("://") {
            return Err(PatternError::Url);
        }
        if text.contains(['/', '@', '?', '#']) {
            return Err(PatternError::NotAName);
        }
        let (host, port) = split_port(text).map_err(|error| match error {
            ServerError::NoPort | ServerError::Port => PatternError::Port,
            ServerError::Name(error) => PatternError::Name(error),
        })?;
        if host == "*" {
            return Err(PatternError::Everything);
        }
        let (name, scope): (_, fn(ServerName) -> Scope) = match host.strip_prefix("*.") {
            Some(parent) => (parent, Scope::Below),
            None => (host, Scope::Exactly),
        };
        if name.contains('*') {
            return Err(PatternError::Star);
        }
        let name = ServerName::from_str(name).map_err(PatternError::Name)?;
        match name.address() {
            Some(_) if host.starts_with('*') => return Err(PatternError::Star),
            None if name.labels() < 2 => return Err(PatternError::TopLevel),
            Some(_) | None => {}
        }
        Ok(Self { scope: scope(name), port, typed: text.into() })
    }
}

/// As it was typed.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}
