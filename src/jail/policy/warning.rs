//! What a person should know about a policy that is in force all the same.

use std::fmt;
use std::path::PathBuf;

use super::meet::Widening;

/// One thing to say on stderr, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A project's file asks for more than the user's own policy allows.
    Untrusted { widening: Widening, directory: PathBuf },
    /// The administrator's ceiling took something away.
    AboveCeiling(Widening),
    /// The agent's profile needs a server that is not allowed.
    ServerNotAllowed { profile: String, server: String },
}

impl Warning {
    /// What was asked for, with the line that asks.
    #[must_use]
    pub fn asked(&self) -> String {
        match self {
            Self::Untrusted { widening, .. } | Self::AboveCeiling(widening) => {
                format!("{} `{}` ({})", widening.key, widening.what, widening.origin)
            }
            Self::ServerNotAllowed { server, .. } => format!("net.allow `{server}`"),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Untrusted { directory, .. } => {
                format!("read the file, then: kvro-jail policy trust {}", directory.display())
            }
            Self::AboveCeiling(_) => "ask who administers this machine".to_owned(),
            Self::ServerNotAllowed { server, .. } => {
                format!("allow it with --allow-host {server}, or [net] allow in the policy")
            }
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untrusted { widening, .. } => {
                write!(f, "{widening}: the directory is not trusted to widen the policy")
            }
            Self::AboveCeiling(widening) => {
                write!(f, "{widening}: the administrator's policy does not allow it")
            }
            Self::ServerNotAllowed { profile, server } => {
                write!(f, "the profile `{profile}` needs {server}, which the policy does not allow")
            }
        }
    }
}
