//! Inference: which servers are providers, what their requests mean, and what an answer used.
//!
//! A provider is one small file of facts. The exchange is the same for all of them.

mod anthropic;
mod call;
mod census;
mod decode;
mod decoded;
mod denial;
mod dialect;
mod exchange;
mod gemini;
mod members;
mod metered;
mod openai;
mod openai_chat;
mod openai_responses;
mod order;
mod provider;
mod route;
mod sse;
mod tally;

pub(crate) use dialect::{Dialect, UsageAsk};
pub use exchange::Exchange;
pub(crate) use openai_chat::is_usage_chunk;
pub use provider::{Provider, UnknownProvider, provider_of, servers};
#[cfg(test)]
pub(crate) use route::Route;
pub(crate) use sse::Splitter;
pub(crate) use tally::{End, Extent, Tally};
