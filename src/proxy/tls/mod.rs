//! TLS towards the jail: the run's own authority.

mod run_ca;

pub use run_ca::{CaError, RunCa};

#[cfg(test)]
mod tests;
