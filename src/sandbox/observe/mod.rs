//! What is seen at the wall: attempts on the network and openings of decoys.
//!
//! One thread of the supervisor waits on three descriptors that the jail handed out: the tap, the
//! watch on the decoys, and the notifications of `connect`. Only the last one decides anything.

mod connects;
mod decoys;
mod names;
mod observer;
pub(crate) mod tap;

pub use connects::RefusedConnect;
pub use names::{Late, Names, RefusedName};
pub use observer::{LastLook, Observation, Observer, Wall};
pub use tap::Attempt;
