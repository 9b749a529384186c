//! Where a connection was going: inside the jail, every address is the door.

use std::net::IpAddr;

use crate::address_book::AddressBook;
use crate::rules::{Decision, Reason, Rules, Server, ServerName};

/// The address that the agent connected to, and the name that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    server: Server,
    named: bool,
}

impl Destination {
    pub(super) fn new(address: IpAddr, port: u16, book: &AddressBook) -> Self {
        let name = book.name_of(address);
        let named = name.is_some();
        Self { server: Server::new(name.unwrap_or_else(|| address.into()), port), named }
    }

    /// By its name, or by its address where no name stands for that.
    pub(super) const fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn judge(&self, rules: &Rules) -> Decision {
        // Defence::Door: network::the_door_refuses_a_server_by_address.
        match rules.judge(&self.server) {
            Decision::Deny(Reason::HostNotListed) if !self.named => {
                Decision::Deny(Reason::AddressWithoutName)
            }
            decision @ (Decision::Allow(_) | Decision::Deny(_)) => decision,
        }
    }

    /// Whether a handshake that asks for `sni` asks for this destination.
    pub(super) fn check_sni(&self, sni: Option<&str>) -> Result<(), Reason> {
        match sni {
            Some(sni) => match sni.parse::<ServerName>() {
                Ok(name) if name == self.server.name => Ok(()),
                Ok(_) | Err(_) => Err(Reason::SniMismatch),
            },
            // A handshake with an address names nobody (RFC 6066 section 3).
            None if !self.named => Ok(()),
            None => Err(Reason::SniMissing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(address: &str) -> Destination {
        let book = AddressBook::default();
        book.assign(&"api.example.com".parse().unwrap());
        Destination::new(address.parse().unwrap(), 443, &book)
    }

    #[test]
    fn an_address_stands_for_its_name() {
        let named = destination("::ffff:198.18.0.1");
        assert_eq!(named.server().to_string(), "api.example.com:443");
        assert_eq!(named.check_sni(Some("api.example.com")), Ok(()));
        assert_eq!(named.check_sni(Some("API.example.com.")), Ok(()));
        assert_eq!(named.check_sni(Some("other.example.com")), Err(Reason::SniMismatch));
        assert_eq!(named.check_sni(Some("")), Err(Reason::SniMismatch));
        assert_eq!(named.check_sni(None), Err(Reason::SniMissing));
    }

    #[test]
    fn an_address_without_a_name_needs_a_rule_of_its_own() {
        let bare = destination("192.0.2.7");
        let rules = |texts: &[&str]| {
            Rules::new(texts.iter().map(|text| text.parse().unwrap()).collect(), Vec::new())
        };
        assert_eq!(
            bare.judge(&rules(&["api.example.com"])),
            Decision::Deny(Reason::AddressWithoutName)
        );
        assert_eq!(
            bare.judge(&rules(&["192.0.2.7"])),
            Decision::Allow("192.0.2.7".parse().unwrap())
        );
        assert_eq!(bare.judge(&rules(&["192.0.2.7:22"])), Decision::Deny(Reason::PortNotListed));
        assert_eq!(bare.check_sni(None), Ok(()));
        assert_eq!(bare.check_sni(Some("api.example.com")), Err(Reason::SniMismatch));
    }
}
