//! What the host has: where the agent works, what is in there that the policy closes, and what of
//! the user's home the agent's tools need. The only part of the policy side that looks at the disk.

mod fold;
mod home;
mod hooks;
mod place;
mod program;
mod real;
mod repository;
mod scan;
mod sights;
mod walk;

#[cfg(test)]
mod tests;

pub use fold::folds_case;
pub use home::{HomeView, SYSTEM_TREES, Settings, Shown, Watched, probe};
pub use hooks::{AccountConfig, read_plain, read_small};
pub use place::{PlaceError, grantable, settle};
pub use real::real_path;
pub use scan::{
    Match, Matches, ScanError, Seen, Survey, directories, everything_below, look, scan,
};
pub use sights::{Sights, is_git_dir, path_in, pointed_to};
pub use walk::{FEW, Kind, Unreadable};
