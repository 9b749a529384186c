//! Inference: which servers are providers, what their requests mean, and what an answer used.
//!
//! A provider is one small file of facts. The exchange is the same for all of them.

mod provider;

pub use provider::{Provider, UnknownProvider, provider_of};
