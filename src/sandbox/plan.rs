//! The plan: everything a jail grants, ready to use.
//!
//! A plan is a value without behaviour: whoever makes it decides, whoever gets it obeys. It travels
//! to the stage in a sealed memfd. [`Plan::closed`] grants nothing; grants are added by name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::limits::Resources;
use crate::pty::WindowSize;

/// Everything a jail grants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub identity: Identity,
    /// What the new root is made of, in the order it is made.
    pub mounts: Vec<Mount>,
    /// Trees whose names are guarded, none of them in another; elsewhere masks are all that covers
    /// names.
    pub guards: Vec<Guarded>,
    /// What covers names inside the mounts, made after them.
    pub masks: Vec<Mask>,
    /// TCP ports that the door serves on every address; without any, only names are answered (and
    /// refused).
    pub door_ports: Vec<u16>,
    /// What the agent's standard input, output and error are.
    pub streams: [Stream; 3],
    /// The size of the terminal when a stream is one.
    pub terminal: WindowSize,
    pub resources: Resources,
    pub command: Command,
}

impl Plan {
    /// A plan that shows nothing, reaches nothing and runs nothing.
    #[must_use]
    pub fn closed(identity: Identity) -> Self {
        Self {
            identity,
            mounts: Vec::new(),
            guards: Vec::new(),
            masks: Vec::new(),
            door_ports: Vec::new(),
            streams: [Stream::Given; 3],
            terminal: WindowSize { rows: 24, columns: 80 },
            resources: Resources::default(),
            command: Command::default(),
        }
    }

    /// Whether any stream needs a terminal made for it.
    #[must_use]
    pub fn needs_terminal(&self) -> bool {
        self.streams.contains(&Stream::Terminal)
    }
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    pub uid: u32,
    pub gid: u32,
}

/// Who the agent is: the one user and group that its namespace knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// As the agent sees itself. Never 0, so that programs that refuse root run.
    pub inside: Ids,
    /// As the kernel sees the agent. The caller's own, or an unprivileged one under a root caller.
    pub kernel: Ids,
}

/// A piece of the new root. `target` is absolute, as the agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mount {
    /// A host tree or file at `target`, with all that is mounted below it.
    Bind {
        #[serde(with = "crate::path_bytes")]
        source: PathBuf,
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
        stretch: Stretch,
        owner: Owner,
    },
    /// `lower` under what is written, which goes to `layer/upper`; `layer/work` must exist as well,
    /// empty. The layer is not synced: after a crash of the machine it is not to be trusted.
    Overlay {
        #[serde(with = "crate::path_bytes")]
        lower: PathBuf,
        #[serde(with = "crate::path_bytes")]
        layer: PathBuf,
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
        owner: Owner,
    },
    /// An empty filesystem in memory of at most `bytes`.
    Tmpfs {
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
        bytes: u64,
        mode: u32,
    },
    /// The usual harmless device nodes, a private `/dev/pts` and `/dev/shm`.
    Devices,
    /// A fresh `/proc` of the jail's own processes, with all that configures the kernel read-only.
    Proc,
    /// A directory of ours.
    Directory {
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
    },
    /// A small file of ours, read-only.
    File {
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
        content: Content,
    },
    /// What lies at `of` in the jail already, over the file at `target`.
    Alias {
        #[serde(with = "crate::path_bytes")]
        of: PathBuf,
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
    },
    /// A symlink of ours.
    Symlink {
        #[serde(with = "crate::path_bytes")]
        target: PathBuf,
        #[serde(with = "crate::path_bytes")]
        to: PathBuf,
    },
}

/// The host's paths that a mount is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'m> {
    pub(crate) tree: &'m Path,
    /// Where an overlay's changes go.
    pub(crate) layer: Option<&'m Path>,
    pub(crate) owner: Owner,
}

impl Mount {
    /// What this is made from, when that is the host's.
    pub(crate) fn origin(&self) -> Option<Origin<'_>> {
        match self {
            Self::Bind { source, owner, .. } => {
                Some(Origin { tree: source, layer: None, owner: *owner })
            }
            Self::Overlay { lower, layer, owner, .. } => {
                Some(Origin { tree: lower, layer: Some(layer), owner: *owner })
            }
            Self::File { content, .. } => content.host.as_ref().map(|HostFile(path)| Origin {
                tree: path,
                layer: None,
                owner: Owner::AsIs,
            }),
            Self::Tmpfs { .. }
            | Self::Devices
            | Self::Proc
            | Self::Directory { .. }
            | Self::Alias { .. }
            | Self::Symlink { .. } => None,
        }
    }
}

/// What a file of ours says: all that a file of the host says, and then something of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub host: Option<HostFile>,
    /// Begins on a line of its own.
    #[serde(with = "serde_bytes")]
    pub own: Vec<u8>,
}

/// The absolute path of a file on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFile(#[serde(with = "crate::path_bytes")] pub PathBuf);

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self { host: None, own: text.into_bytes() }
    }
}

/// How far a grant stretches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stretch {
    /// Read and run.
    ReadOnly,
    /// Read, run, write.
    ReadWrite,
}

/// Whom the files of a mount seem to belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// As on the host.
    AsIs,
    /// Files of these host ids are the agent's, and what the agent makes becomes theirs: an
    /// idmapped mount.
    Mapped(Ids),
}

/// A tree in which names are guarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// Absolute; the target of a read-write [`Mount::Bind`] of the plan.
    #[serde(with = "crate::path_bytes")]
    pub root: PathBuf,
    /// The guarded directories, outer before inner; every directory on the way from the root to one
    /// is itself one.
    pub views: Vec<View>,
    /// Globs, relative to the root, that match whatever may be closed: names that the host makes
    /// in other directories are told by them. Without any, nothing else is watched.
    pub suspects: Vec<String>,
    /// Whether they match names in any case.
    pub folds_case: bool,
    /// When the scan that found the views began, in seconds since the epoch: a directory that did not
    /// change since holds no other suspects.
    pub scanned: i64,
}

/// A guarded directory as it is at launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Relative to the root; empty for the root itself.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
    /// How far what is in it may be changed.
    pub stretch: Stretch,
    /// What is shown in it. Whatever else is there is not shown until it is asked for.
    pub names: Vec<Shown>,
}

/// A name in a guarded directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    #[serde(with = "crate::path_bytes")]
    pub name: PathBuf,
    pub shown: ShownAs,
}

/// What a guarded directory shows at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShownAs {
    /// What is there.
    Open,
    /// The same, read-only.
    Protected,
    /// Only a place for the mask that will cover it.
    Covered,
}

/// A name that is covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    /// Absolute, as the agent sees it; no component may be a symlink.
    #[serde(with = "crate::path_bytes")]
    pub target: PathBuf,
    pub kind: MaskKind,
}

/// How a name is covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaskKind {
    /// Shows a decoy with this text (an empty directory over a directory); opening it is seen.
    Hidden { text: String },
    /// Shows what is there, read-only.
    Protected,
}

/// What one of the agent's standard streams is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// The supervisor's own descriptor: a pipe, a file, `/dev/null`.
    Given,
    /// The jail's own terminal.
    Terminal,
}

/// What is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// A path, or a name to find in `PATH` of `env`.
    pub program: OsString,
    /// Without the program itself.
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    #[serde(with = "crate::path_bytes")]
    pub cwd: PathBuf,
}
