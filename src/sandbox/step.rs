//! The steps of a launch, as they are named when one fails.
//!
//! The stage and pid 1 word nothing: they report `{step, errno}`. The words are here.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A step of the launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    ReadPlan,
    MapOwners(#[serde(with = "crate::path_bytes")] PathBuf),
    EnterNamespaces,
    MapIdentity,
    BecomeAgentUser,
    LeaveKeyring,
    OpenTree(#[serde(with = "crate::path_bytes")] PathBuf),
    NewRoot,
    Make(#[serde(with = "crate::path_bytes")] PathBuf),
    Mount(#[serde(with = "crate::path_bytes")] PathBuf),
    Overlay(#[serde(with = "crate::path_bytes")] PathBuf),
    MountProc,
    Mask(#[serde(with = "crate::path_bytes")] PathBuf),
    EnterRoot,
    BringUpLoopback,
    RouteToDoor,
    Listen(u16),
    OpenTap,
    OpenTerminal,
    Report,
    DropPrivileges,
    Fork,
    SetLimits,
    NewSession,
    Landlock,
    Seccomp,
    EnterDirectory(#[serde(with = "crate::path_bytes")] PathBuf),
    /// The directory whose names are guarded.
    Guard(#[serde(with = "crate::path_bytes")] PathBuf),
    EnterGuard,
    /// The command itself: not a fault of the jail.
    Execute,
}

impl Step {
    /// The layer that a failure of this step leaves out, as `doctor` and `--require` name it.
    #[must_use]
    pub fn layer(&self) -> &'static str {
        match self {
            Self::EnterNamespaces | Self::MapIdentity | Self::BecomeAgentUser => "user_namespace",
            Self::MapOwners(_) => "idmapped_mount",
            Self::BringUpLoopback | Self::RouteToDoor | Self::Listen(_) | Self::OpenTap => {
                "network_namespace"
            }
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::SetLimits => "resources",
            Self::OpenTree(_)
            | Self::NewRoot
            | Self::Make(_)
            | Self::Mount(_)
            | Self::Overlay(_)
            | Self::MountProc
            | Self::Mask(_)
            | Self::EnterRoot => "mount_namespace",
            Self::Guard(_) | Self::EnterGuard => "guard",
            Self::ReadPlan
            | Self::LeaveKeyring
            | Self::OpenTerminal
            | Self::Report
            | Self::DropPrivileges
            | Self::Fork
            | Self::NewSession
            | Self::EnterDirectory(_)
            | Self::Execute => "launch",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadPlan => f.write_str("read the plan of the jail"),
            Self::MapOwners(path) => write!(f, "map the owners of {}", path.display()),
            Self::EnterNamespaces => f.write_str("enter new namespaces"),
            Self::MapIdentity => f.write_str("map the agent's user into its namespace"),
            Self::BecomeAgentUser => f.write_str("become the agent's user"),
            Self::LeaveKeyring => f.write_str("leave the session keyring"),
            Self::OpenTree(path) => write!(f, "open {} for the jail", path.display()),
            Self::NewRoot => f.write_str("make the jail's root"),
            Self::Make(path) => write!(f, "make {} in the jail", path.display()),
            Self::Mount(path) => write!(f, "mount {} in the jail", path.display()),
            Self::Overlay(path) => write!(f, "mount the writable layer over {}", path.display()),
            Self::MountProc => f.write_str("mount a fresh /proc"),
            Self::Mask(path) => write!(f, "cover {}", path.display()),
            Self::EnterRoot => f.write_str("enter the jail's root"),
            Self::BringUpLoopback => f.write_str("bring up the jail's loopback"),
            Self::RouteToDoor => f.write_str("route every address to the door"),
            Self::Listen(port) => write!(f, "listen on port {port} in the jail"),
            Self::OpenTap => f.write_str("open the tap"),
            Self::OpenTerminal => f.write_str("open the jail's terminal"),
            Self::Report => f.write_str("report to the supervisor"),
            Self::DropPrivileges => f.write_str("drop all capabilities"),
            Self::Fork => f.write_str("fork"),
            Self::SetLimits => f.write_str("set the resource limits"),
            Self::NewSession => f.write_str("start a session for the agent"),
            Self::Landlock => f.write_str("apply Landlock"),
            Self::Seccomp => f.write_str("install the seccomp filter"),
            Self::EnterDirectory(path) => write!(f, "enter {}", path.display()),
            Self::Guard(path) => write!(f, "guard the names in {}", path.display()),
            Self::EnterGuard => f.write_str("start the guard"),
            Self::Execute => f.write_str("run the command"),
        }
    }
}

/// A failed step, as it travels: the step and the kernel's errno.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepFailed {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

/// Names the step that an error ends.
pub(crate) trait During<T> {
    fn during(self, step: impl FnOnce() -> Step) -> Result<T, StepFailed>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: impl FnOnce() -> Step) -> Result<T, StepFailed> {
        self.map_err(|error| StepFailed {
            step: step(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        })
    }
}
