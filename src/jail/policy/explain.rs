//! Answers to "what would happen, and which line says so".

use std::path::Path;

use super::entry::Entry;
use super::globs::PathGlob;
use super::names::{NamePattern, Variable};
use super::rules::Policy;
use std::path::PathBuf;

/// What the policy says about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAnswer<'p> {
    /// Unreadable, never writable, not creatable.
    Hidden(&'p Entry<PathGlob>),
    /// Readable, never writable.
    Protected(&'p Entry<PathGlob>),
    Writable(&'p Entry<PathBuf>),
    /// By a grant of its own.
    Readable(&'p Entry<PathBuf>),
    /// The workspace is always readable.
    InWorkspace,
    /// No rule of the policy speaks of it; profile and system trees may still show it.
    NotNamed,
}

/// What the policy says about a variable of the caller's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvAnswer<'p> {
    Set(&'p Entry<Variable>),
    Passes(&'p Entry<NamePattern>),
    Dropped,
}

impl Policy {
    /// What holds for `path`, absolute and without `..`, in `workspace`.
    #[must_use]
    pub fn explain_path(&self, workspace: &Path, path: &Path) -> PathAnswer<'_> {
        let inside = path.strip_prefix(workspace).ok();
        let covered = |cover| inside.and_then(|path| super::globs::Cover::covers(cover, path));
        if let Some(rule) = covered(&self.files.hide) {
            return PathAnswer::Hidden(rule);
        }
        if let Some(rule) = covered(&self.files.protect) {
            return PathAnswer::Protected(rule);
        }
        if let Some(rule) = self.files.writable(path) {
            return PathAnswer::Writable(rule);
        }
        if let Some(rule) = self.files.readable(path) {
            return PathAnswer::Readable(rule);
        }
        if inside.is_some() { PathAnswer::InWorkspace } else { PathAnswer::NotNamed }
    }

    /// What holds for the variable `name`.
    #[must_use]
    pub fn explain_env(&self, name: &str) -> EnvAnswer<'_> {
        if let Some(entry) = self.env.setting(name) {
            return EnvAnswer::Set(entry);
        }
        self.env.passing(name).map_or(EnvAnswer::Dropped, EnvAnswer::Passes)
    }
}
