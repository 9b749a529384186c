//! What is new, stays where it is, and might be run or followed by somebody who does not know.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kvro_ledger::event::AlertRaised;

use super::identity::{Identity, Raw};
use super::launch::{Launch, TODO, pointer};
use crate::git::{self, Effect};
use crate::policy::lexical;
use crate::workspace::{Sights, path_in, pointed_to, read_small};

/// Of one kind so many are told, and then how many more there are.
const MOST: usize = 500;
/// Of one repository.
const MOST_OF_ONE: usize = 8;
/// A value is told up to this length.
const LONGEST: usize = 120;

/// A workspace after its run.
#[derive(Debug, Clone, Copy)]
pub(super) struct After<'a> {
    pub(super) launch: &'a Launch,
    pub(super) workspace: &'a Path,
    pub(super) sights: &'a Sights,
    /// What was moved away: nothing is told of what was in there.
    pub(super) gone: &'a BTreeSet<PathBuf>,
}

/// One kind of finding, bounded.
#[derive(Debug)]
pub(super) struct Kindred {
    what: &'static str,
    details: Vec<String>,
    more: usize,
}

impl Kindred {
    pub(super) const fn new(what: &'static str) -> Self {
        Self { what, details: Vec::new(), more: 0 }
    }

    pub(super) fn add(&mut self, detail: String) {
        if self.details.len() < MOST { self.details.push(detail) } else { self.more += 1 }
    }

    pub(super) fn into_alerts(self) -> impl Iterator<Item = AlertRaised> {
        let more = (self.more > 0).then(|| format!("and {} more", self.more));
        let details = self.details.into_iter().chain(more);
        details.map(move |detail| AlertRaised { what: self.what.to_owned(), detail })
    }
}

impl After<'_> {
    /// Everything but files that say who runs them, which the walk itself found.
    pub(super) fn alerts(self) -> Vec<AlertRaised> {
        let kinds =
            [self.repositories(), self.rebases(), self.pointers(), self.links(), self.settings()];
        kinds.into_iter().flat_map(Kindred::into_alerts).collect()
    }

    fn is_gone(self, path: &Path) -> bool {
        path.ancestors().any(|above| self.gone.contains(above))
    }

    fn is_known(self, git_dir: &Path) -> bool {
        let Ok(found) = fs::symlink_metadata(self.workspace.join(git_dir)) else { return false };
        let now = Identity::of(&found);
        // Also where it was moved to: it is what it was.
        self.launch.git_dirs.values().any(|known| known.is_same(&now))
    }

    /// Repositories that are new and have something to run.
    fn repositories(self) -> Kindred {
        let mut kindred = Kindred::new("repository_runs_programs");
        for git_dir in &self.sights.git_dirs {
            if self.is_gone(git_dir) || self.is_known(git_dir) {
                continue;
            }
            let mut runs = self.config_of(git_dir);
            runs.extend(self.hooks_of(git_dir));
            if !runs.is_empty() {
                let more = runs.len().saturating_sub(MOST_OF_ONE);
                runs.truncate(MOST_OF_ONE);
                let more = if more > 0 { format!("; {more} more") } else { String::new() };
                kindred.add(format!("{}: {}{more}", shown(git_dir), runs.join("; ")));
            }
        }
        kindred
    }

    fn config_of(self, git_dir: &Path) -> Vec<String> {
        let own = self.workspace.join(git_dir);
        let mut places = vec![own.clone()];
        let mut runs = Vec::new();
        if let Ok(words) = read_small(&own.join("commondir")) {
            let common = lexical(&own.join(path_in(&words)));
            let is_seen = |dir: &PathBuf| self.workspace.join(dir) == common;
            if !self.sights.git_dirs.iter().any(is_seen) {
                runs.push(format!("commondir = {}", shown(&common)));
                places.push(common);
            }
        }
        for file in places.iter().flat_map(|dir| ["config", "config.worktree"].map(|f| dir.join(f)))
        {
            let Ok(text) = read_small(&file) else { continue };
            match git::changes(b"", &text) {
                Ok(changes) => runs.extend(changes.iter().filter_map(|change| {
                    let value = change.value.as_deref().unwrap_or_default();
                    let value = shortened(&String::from_utf8_lossy(value));
                    (change.effect == Effect::Runs).then(|| format!("{} = {value}", change.key))
                })),
                Err(error) => runs.push(format!("config cannot be judged: {error}")),
            }
        }
        runs
    }

    fn hooks_of(self, git_dir: &Path) -> Vec<String> {
        let Ok(hooks) = self.workspace.join(git_dir).join("hooks").read_dir() else {
            return Vec::new();
        };
        let names = hooks.flatten().map(|entry| entry.file_name());
        let names = names.filter(|name| !name.as_bytes().ends_with(b".sample"));
        let mut names: Vec<String> =
            names.map(|name| format!("hook {}", shown(Path::new(&name)))).collect();
        names.sort_unstable();
        names
    }

    /// Plans of rebases that run commands which no plan had at launch.
    fn rebases(self) -> Kindred {
        let mut kindred = Kindred::new("rebase_runs_commands");
        for git_dir in &self.sights.git_dirs {
            let path = git_dir.join(TODO);
            let Ok(text) = read_small(&self.workspace.join(&path)) else { continue };
            let known = self.launch.todos.get(&Raw(path.clone()));
            let is_new = |command: &String| !known.is_some_and(|known| known.contains(command));
            let commands: Vec<String> =
                git::commands(&text).into_iter().filter(is_new).map(|c| shortened(&c)).collect();
            if !commands.is_empty() && !self.is_gone(&path) {
                let first = commands.iter().take(MOST_OF_ONE).cloned().collect::<Vec<_>>();
                kindred.add(format!("{}: {}", shown(&path), first.join("; ")));
            }
        }
        kindred
    }

    /// Where `.git` leads elsewhere than at launch, or out of the workspace.
    fn pointers(self) -> Kindred {
        let mut kindred = Kindred::new("git_pointer_changed");
        for path in &self.sights.pointers {
            let Some(now) = pointer(self.workspace, path) else { continue };
            let changed = match self.launch.pointers.get(&Raw::from(path.as_path())) {
                Some(known) => *known != now,
                None => self.leads_out(path, &now),
            };
            if changed && !self.is_gone(path) {
                let now = shortened(&String::from_utf8_lossy(now.trim_ascii()));
                kindred.add(format!("{}: {now}", shown(path)));
            }
        }
        kindred
    }

    fn leads_out(self, path: &Path, words: &[u8]) -> bool {
        let Some(target) = pointed_to(words.trim_ascii()) else { return false };
        let from = self.workspace.join(path);
        let target = lexical(&from.parent().unwrap_or(self.workspace).join(target));
        !target.starts_with(self.workspace)
    }

    /// What kept files say now that others would run.
    fn settings(self) -> Kindred {
        let mut kindred = Kindred::new("settings_name_programs");
        for (file, known) in &self.launch.settings {
            let file = file.0.as_path();
            match known.new_in(file) {
                Ok(new) => {
                    for (way, what) in new {
                        kindred.add(format!("{}: {way} = {}", shown(file), shortened(&what)));
                    }
                }
                Err(error) => kindred.add(format!("{} cannot be judged: {error}", shown(file))),
            }
        }
        kindred
    }

    fn links(self) -> Kindred {
        let mut kindred = Kindred::new("link_leaves_workspace");
        for (path, target) in &self.sights.links {
            let known = self.launch.links.get(&Raw::from(path.as_path()));
            if known.is_none_or(|known| known.0 != *target) && !self.is_gone(path) {
                kindred.add(format!("{} -> {}", shown(path), shown(target)));
            }
        }
        kindred
    }
}

/// A path as an event says it: whoever prints it makes it harmless.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
