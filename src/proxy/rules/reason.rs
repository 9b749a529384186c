//! Why the door refuses: one closed list for 403 bodies, events and tests.

use std::fmt;

use super::name::{Server, ServerName};

/// Why a name or a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    HostNotListed,
    HostDenied,
    PortNotListed,
    /// A connection to an address that no answered name stands for and no rule lists.
    AddressWithoutName,
    SniMissing,
    SniMismatch,
    HostHeaderMismatch,
    AddressPrivate,
    AddressMetadata,
    /// Neither TLS nor HTTP, on a port where the door must read a name.
    ProtocolUnknown,
    /// A proxy's request form, at a door that is no proxy to the agent.
    ProxyForm,
    /// An inference server by a way that cannot be metered.
    NotMeterable,
    /// The client refused the run's own authority.
    CaNotTrusted,
    /// A name that cannot be one.
    NameMalformed,
    /// More allowed names than one run can have addresses for.
    TooManyNames,
}

impl Reason {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::HostNotListed => "host_not_listed",
            Self::HostDenied => "host_denied",
            Self::PortNotListed => "port_not_listed",
            Self::AddressWithoutName => "address_without_name",
            Self::SniMissing => "sni_missing",
            Self::SniMismatch => "sni_mismatch",
            Self::HostHeaderMismatch => "host_header_mismatch",
            Self::AddressPrivate => "address_private",
            Self::AddressMetadata => "address_metadata",
            Self::ProtocolUnknown => "protocol_unknown",
            Self::ProxyForm => "proxy_form",
            Self::NotMeterable => "not_meterable",
            Self::CaNotTrusted => "ca_not_trusted",
            Self::NameMalformed => "name_malformed",
            Self::TooManyNames => "too_many_names",
        }
    }

    /// One sentence for whoever reads the refusal.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::HostNotListed => "the policy does not list this server",
            Self::HostDenied => "the policy denies this server",
            Self::PortNotListed => "the policy does not list this port of the server",
            Self::AddressWithoutName => "no allowed name stands for this address",
            Self::SniMissing => "the TLS handshake names no server",
            Self::SniMismatch => "the TLS handshake names another server than the address",
            Self::HostHeaderMismatch => "the Host header names another server than the address",
            Self::AddressPrivate => "the server's address is private",
            Self::AddressMetadata => "the server's address is a cloud's metadata service",
            Self::ProtocolUnknown => "only TLS and HTTP pass on this port",
            Self::ProxyForm => "the door is no proxy: connect to the server itself",
            Self::NotMeterable => "an inference server is reached by TLS only",
            Self::CaNotTrusted => "the client does not trust the run's authority",
            Self::NameMalformed => "this is no server's name",
            Self::TooManyNames => "the run has asked for too many names",
        }
    }

    /// The policy line that would let `server` through, where a line can.
    #[must_use]
    pub fn remedy(self, server: &Server) -> Option<String> {
        match self {
            Self::HostNotListed if matches!(server.port, 80 | 443) => {
                Some(allow_line(&server.name))
            }
            Self::HostNotListed | Self::PortNotListed => Some(allow_line(server)),
            Self::AddressWithoutName => Some(allow_line(server)),
            Self::AddressPrivate => {
                Some("[net] danger_private = [\"<the address>/32\"]".to_owned())
            }
            Self::HostDenied
            | Self::SniMissing
            | Self::SniMismatch
            | Self::HostHeaderMismatch
            | Self::AddressMetadata
            | Self::ProtocolUnknown
            | Self::ProxyForm
            | Self::NotMeterable
            | Self::CaNotTrusted
            | Self::NameMalformed
            | Self::TooManyNames => None,
        }
    }

    /// The policy line that would let `name` resolve, where a line can.
    #[must_use]
    pub fn remedy_for_name(self, name: &ServerName) -> Option<String> {
        (self == Self::HostNotListed).then(|| allow_line(name))
    }
}

fn allow_line(what: &impl fmt::Display) -> String {
    format!("[net] allow = [\"{what}\"]")
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
