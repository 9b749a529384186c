//! Decides whether a server may be reached.
//!
//! A deny wins over every allow, whatever is more specific: a person who wrote both meant the deny.
//! No rule allows anything that it does not name, so an empty list allows nothing.

use std::collections::BTreeSet;

use super::name::{Server, ServerName};
use super::pattern::{HostPattern, WEB_PORTS};
use super::reason::Reason;

/// What was decided about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// By this rule.
    Allow(HostPattern),
    Deny(Reason),
}

/// The server rules of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    allow: Vec<HostPattern>,
    deny: Vec<HostPattern>,
}

impl Rules {
    #[must_use]
    pub const fn new(allow: Vec<HostPattern>, deny: Vec<HostPattern>) -> Self {
        Self { allow, deny }
    }

    /// Rules that allow nothing.
    #[must_use]
    pub const fn closed() -> Self {
        Self::new(Vec::new(), Vec::new())
    }

    /// Judges whether a connection to `server` may leave.
    #[must_use]
    pub fn judge(&self, server: &Server) -> Decision {
        if self.deny.iter().any(|rule| rule.denies(server)) {
            return Decision::Deny(Reason::HostDenied);
        }
        if let Some(rule) = self.allow.iter().find(|rule| rule.allows(server)) {
            return Decision::Allow(rule.clone());
        }
        let named = self.allow.iter().any(|rule| rule.covers_name(&server.name));
        Decision::Deny(if named { Reason::PortNotListed } else { Reason::HostNotListed })
    }

    /// Judges whether `name` may be known at all: whether any port of it may be reached.
    #[must_use]
    pub fn judge_name(&self, name: &ServerName) -> Decision {
        let mut reason = Reason::HostNotListed;
        for rule in self.allow.iter().filter(|rule| rule.covers_name(name)) {
            reason = Reason::HostDenied;
            for &port in rule.ports() {
                if let allowed @ Decision::Allow(_) = self.judge(&Server::new(name.clone(), port)) {
                    return allowed;
                }
            }
        }
        if self.deny.iter().any(|rule| rule.port().is_none() && rule.covers_name(name)) {
            reason = Reason::HostDenied;
        }
        Decision::Deny(reason)
    }

    /// The ports that the door has to listen on. The web's are among them in any case, so that a
    /// refusal there says why.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<u16> {
        self.allow.iter().filter_map(HostPattern::port).chain(WEB_PORTS).collect()
    }
}
