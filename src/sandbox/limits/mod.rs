//! Ceilings on memory, processes and processors.

mod cgroup;
mod rlimits;

use serde::{Deserialize, Serialize};

pub(crate) use cgroup::Cgroup;
pub(crate) use rlimits::apply;

/// What the whole jail may use; `None` is no ceiling of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Bytes.
    pub memory: Option<u64>,
    pub pids: Option<u64>,
    /// Thousandths of a processor.
    pub millicpus: Option<u64>,
}

impl Resources {
    /// Whether no ceiling is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How the ceilings are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// No ceiling was asked for.
    None,
    /// A control group of the jail's own: over all its processes together.
    Cgroup,
    /// Resource limits: memory for each process, processors by affinity.
    ResourceLimits,
}

impl Confinement {
    /// The words of `isolation.applied`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none asked for",
            Self::Cgroup => "cgroup v2",
            Self::ResourceLimits => "resource limits (memory for each process)",
        }
    }
}
