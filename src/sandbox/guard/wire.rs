//! Messages between the supervisor and the guard, over a socket pair of their own.
//!
//! The supervisor asks and waits for the answer; what appeared on the host comes in between.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A name in a directory of the guarded tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct At {
    /// Relative to the root.
    #[serde(with = "crate::path_bytes")]
    pub(crate) dir: PathBuf,
    #[serde(with = "crate::path_bytes")]
    pub(crate) name: PathBuf,
}

impl At {
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }
}

/// A message about one of the guarded trees, by its place in the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About<M> {
    pub(crate) tree: usize,
    pub(crate) message: M,
}

/// What is asked of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToGuard {
    Make {
        at: At,
        what: Making,
    },
    Remove {
        at: At,
        is_dir: bool,
    },
    /// `flags` are those of renameat2(2).
    Rename {
        from: At,
        to: At,
        flags: u32,
    },
    Link {
        from: At,
        to: At,
    },
    /// As a rename, but what comes to lie at `to` is the content of the descriptor: `from` may still
    /// be open to somebody who would change it.
    Replace {
        from: At,
        to: At,
    },
    /// The answer to [`FromGuard::Appeared`].
    Show {
        at: At,
        standing: Standing,
        /// Directories at and below it that are to be guarded, as [`crate::plan::Guarded`] has them.
        #[serde(with = "paths")]
        views: Vec<PathBuf>,
    },
}

/// What is made at a guarded name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Making {
    /// Opened with these flags of open(2); the umask is taken off the mode.
    File {
        flags: i32,
        mode: u32,
    },
    Dir {
        mode: u32,
        standing: Standing,
    },
    Symlink {
        #[serde(with = "crate::path_bytes")]
        to: PathBuf,
    },
    /// With the kind of node in the mode, as mknod(2) has it; never a device.
    Node {
        mode: u32,
    },
    /// The name of the socket that comes along.
    Socket {
        umask: u32,
    },
}

/// What a name is to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    Open,
    /// Unreadable, and not to be made.
    Hidden,
    /// Read-only, and not to be made.
    Protected,
    /// A directory below which names are closed that may not exist yet.
    Leads,
}

impl Standing {
    /// Whether the name is not to be made or changed.
    #[must_use]
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Hidden | Self::Protected)
    }
}

/// What the guard answers and tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromGuard {
    Done,
    /// The new file, open, is the descriptor of this message.
    Opened,
    /// It is there already: the kernel's own open finds it.
    IsThere,
    Failed {
        errno: i32,
    },
    /// Something is new, or another one, at this name on the host. It is not shown yet.
    Appeared {
        at: At,
        is_dir: bool,
    },
    /// Directories from this one on are not watched: the kernel gives no more watches.
    Unwatched {
        #[serde(with = "crate::path_bytes")]
        dir: PathBuf,
    },
}

mod paths {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(with = "crate::path_bytes")] PathBuf);

    pub(super) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| One(path.clone())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<One>::deserialize(deserializer)?;
        Ok(paths.into_iter().map(|One(path)| path).collect())
    }
}
