//! What a run is allowed: files as people write them, layers, profiles, decisions.

mod build;
mod builtin;
mod entry;
mod error;
mod explain;
mod globs;
mod leads;
mod load;
mod meet;
mod names;
mod narrow;
mod overlay;
mod profile;
mod reader;
mod render;
mod rules;
mod schema;
mod sieve;
mod trust;
mod units;
mod warning;

#[cfg(test)]
mod tests;

pub use builtin::{policy as builtin_policy, policy_names, profile as profile_text, profile_names};
pub use entry::{COMMAND_LINE, Entry, Origin};
pub use error::{Mistake, PolicyError, Problem};
pub use explain::{EnvAnswer, PathAnswer};
pub(crate) use globs::is_literal;
pub use globs::{Cover, GlobError, GlobList, PathGlob};
pub(crate) use leads::Leads;
pub use load::{Loaded, PROJECT_FILE, asked_beyond, asked_in_vain, check, find_project, load};
pub use meet::Widening;
pub use names::{NameError, NameList, NamePattern, Variable};
pub use overlay::{EnvWord, Overlay, PolicyChoice};
pub use profile::{
    CleanFile, EmptyKey, HomePath, Keep, KeyPath, Moved, Profile, Profiles, builtin_profile,
};
pub use reader::lexical;
pub use rules::{
    EnvRules, FileRules, InferenceServer, Level, NetMode, NetRules, Policy, PriceRow, Redirect,
    Resources, UnknownLevel, UnknownMode,
};
pub use sieve::Sieve;
pub use trust::TrustStore;
pub use units::{ByteSize, Cpus, CpusError, SizeError, Span, SpanError};
pub use warning::Warning;
