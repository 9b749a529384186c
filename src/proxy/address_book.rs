//! The addresses that allowed names have inside the jail.
//!
//! An address of the door's own range is given to each allowed name that is asked for, for as long
//! as the run lasts; the destination of a connection then says which name was meant. No address
//! here has a meaning outside the jail.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::rules::ServerName;

/// 198.18.0.0/15 is set aside for benchmarks (RFC 2544), so no program means it by itself.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 1]);

/// A wildcard rule allows names without end; an agent can only use up this many.
const MOST: u32 = 16_384;

/// Which name an address stands for. Shared by whoever answers, serves or reports.
#[derive(Debug, Default)]
pub struct AddressBook {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<ServerName, Ipv4Addr>,
    by_address: HashMap<IpAddr, ServerName>,
    given: u32,
}

/// The address of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// Nobody asked for this name before.
    First(Ipv4Addr),
    Again(Ipv4Addr),
    /// The run has used up its addresses.
    Exhausted,
}

impl AddressBook {
    /// The name that `address` stands for; an IPv4-mapped address is taken for what it maps.
    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> Option<ServerName> {
        self.lock().by_address.get(&address.to_canonical()).cloned()
    }

    /// Lets an address outside of the range stand for a name, as a test needs it whose listeners
    /// are on its own loopback.
    pub fn pin(&self, address: IpAddr, name: ServerName) {
        let mut entries = self.lock();
        if let IpAddr::V4(v4) = address {
            entries.by_name.insert(name.clone(), v4);
        }
        entries.by_address.insert(address, name);
    }

    pub(crate) fn assign(&self, name: &ServerName) -> Assigned {
        let mut entries = self.lock();
        if let Some(&address) = entries.by_name.get(name) {
            return Assigned::Again(address);
        }
        if entries.given == MOST {
            return Assigned::Exhausted;
        }
        let address = Ipv4Addr::from(FIRST + entries.given);
        entries.given += 1;
        entries.by_name.insert(name.clone(), address);
        entries.by_address.insert(address.into(), name.clone());
        Assigned::First(address)
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // Each change leaves the maps whole, also where a holder panicked in between.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ServerName {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_keeps_its_address_and_the_address_its_name() {
        let book = AddressBook::default();
        let first = Ipv4Addr::new(198, 18, 0, 1);
        assert_eq!(book.assign(&name("a.example")), Assigned::First(first));
        assert_eq!(book.assign(&name("b.example")), Assigned::First(Ipv4Addr::new(198, 18, 0, 2)));
        assert_eq!(book.assign(&name("a.example")), Assigned::Again(first));
        assert_eq!(book.name_of(first.into()), Some(name("a.example")));
        assert_eq!(book.name_of(first.to_ipv6_mapped().into()), Some(name("a.example")));
        assert_eq!(book.name_of(Ipv4Addr::new(198, 18, 0, 3).into()), None);
    }

    #[test]
    fn the_book_is_bounded_and_what_it_gave_stays() {
        let book = AddressBook::default();
        for i in 0..MOST {
            book.assign(&name(&format!("n{i}.example")));
        }
        assert_eq!(book.assign(&name("more.example")), Assigned::Exhausted);
        assert_eq!(book.assign(&name("n0.example")), Assigned::Again(Ipv4Addr::new(198, 18, 0, 1)));
    }
}
