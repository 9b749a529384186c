//! What one run's door is to do, ready to use. Where it comes from (policies, profiles, flags) is
//! not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::address_book::AddressBook;
use crate::inference::{self, Provider};
use crate::rules::{Rules, ServerName};
use crate::tls::RunCa;
use crate::upstream::Outside;

/// The door's configuration.
#[derive(Debug)]
pub struct Config {
    pub rules: Rules,
    pub outside: Outside,
    /// Inference servers beyond those that the provider files name.
    pub inference: BTreeMap<ServerName, Provider>,
    /// Its certificate is in the jail's bundle.
    pub ca: RunCa,
    /// Shared with whoever reports on addresses.
    pub address_book: Arc<AddressBook>,
}

impl Config {
    /// Who meters what goes to `name`, if anybody does.
    pub(crate) fn provider_of(&self, name: &ServerName) -> Option<Provider> {
        self.inference.get(name).copied().or_else(|| inference::provider_of(name.as_str()))
    }
}
