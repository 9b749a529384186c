//! What a process may touch: the plan of a jail, its launch, and what is seen at its wall.
//!
//! The crate has no policy: it does what a [`Plan`] says and refuses what the kernel cannot do. It
//! is synchronous, and the only crate with `unsafe`, all of it in `sys`.

mod collector;
mod creds;
mod exec;
mod guard;
mod host;
mod identity;
mod init;
mod jail;
mod landlock;
mod launch;
mod limits;
mod lookup;
mod mounts;
mod net;
mod observe;
mod path_bytes;
mod plan;
mod pty;
mod seccomp;
mod stage;
mod step;
mod sys;
mod wire;

pub use guard::{GuardHandle, Standing};
pub use host::Host;
pub use jail::{Ended, Jail, JailEvent};
pub use landlock::{abi as landlock_abi, missing as landlock_missing};
pub use launch::{Door, LaunchError, Stage, Starting};
pub use limits::{Confinement, Resources};
pub use observe::{
    Attempt, GuardedTree, LastLook, Late, MissedProcesses, Names, Observation, Observer,
    ProcessEnd, ProcessExited, ProcessProgram, ProcessSeen, ProcessStarted, RefusedConnect,
    RefusedName, StartedBy, Wall, WhyMissed,
};
pub use plan::{
    Command, Content, Guarded, HostFile, Identity, Ids, Mask, MaskKind, Mount, Owner, Plan, Shown,
    ShownAs, Stream, Stretch, View,
};
pub use pty::{RawMode, WindowSize};
pub use seccomp::{RefusedCall, refused_calls};
pub use stage::{STAGE_ARGUMENT, run as run_stage};
pub use step::Step;
