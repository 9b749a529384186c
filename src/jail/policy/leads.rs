//! Directories that lead to closed names: where such a name can come to lie with the directory
//! that it is in, and not by a name of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use globset::GlobMatcher;

use super::globs::{Case, PathGlob, glob, is_literal};

/// The directories above what some patterns match, whether they are there or not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leads {
    /// Those that patterns spell out: `.git` for `.git/hooks/**`.
    spelled: BTreeSet<PathBuf>,
    /// Those that patterns describe, `mods/*` for `mods/*/hook`, with how deep they lie; outer
    /// before inner.
    described: BTreeSet<Described>,
    /// From these directories on, names are closed at any depth; empty for the root.
    deep: Vec<Option<GlobMatcher>>,
}

#[derive(Debug, Clone)]
struct Described {
    depth: usize,
    glob: GlobMatcher,
}

impl Leads {
    pub(super) fn of<'g>(patterns: impl Iterator<Item = &'g PathGlob>) -> Self {
        let mut leads = Self::default();
        patterns.for_each(|pattern| leads.add(pattern.body(), pattern.case()));
        leads
    }

    fn add(&mut self, pattern: &str, case: Case) {
        let Some((above, name)) = pattern.rsplit_once('/') else { return };
        let parts: Vec<&str> = above.split('/').collect();
        for (at, part) in parts.iter().enumerate() {
            let way = parts[..=at].join("/");
            if case == Case::Told && parts[..=at].iter().all(|part| is_literal(part)) {
                self.spelled.insert(way.into());
            } else if let Some(glob) = one_way(&way, case).filter(|_| !part.contains("**")) {
                self.described.insert(Described { depth: at + 1, glob });
            } else {
                // `**/name` closes the name wherever it is: moving it changes nothing.
                let is_anywhere = at == 0 && parts.len() == 1 && *part == "**";
                if !is_anywhere || name.contains("**") {
                    self.deep
                        .push((at > 0).then(|| one_way(&parts[..at].join("/"), case)).flatten());
                }
                return;
            }
        }
    }

    /// Those that patterns spell out, outer before inner.
    pub(super) fn spelled(&self) -> impl Iterator<Item = &PathBuf> {
        self.spelled.iter()
    }

    /// Whether `dir` leads to closed names.
    pub(crate) fn contains(&self, dir: &Path) -> bool {
        self.spelled.contains(dir) || self.described.iter().any(|one| one.glob.is_match(dir))
    }

    /// Whether names at any depth below `dir` may be closed for where they lie.
    pub(crate) fn reach_below(&self, dir: &Path) -> bool {
        self.deep.iter().any(|from| {
            let Some(from) = from else { return true };
            dir.ancestors().any(|above| from.is_match(above))
        })
    }

    /// Those that are there in `root`, no link among them.
    pub(crate) fn present(&self, root: &Path) -> BTreeSet<PathBuf> {
        let is_dir = |dir: &PathBuf| {
            fs::symlink_metadata(root.join(dir)).is_ok_and(|metadata| metadata.is_dir())
        };
        let mut present: BTreeSet<PathBuf> =
            self.spelled.iter().filter(|dir| is_dir(dir)).cloned().collect();
        for Described { depth, glob } in &self.described {
            let parents: Vec<PathBuf> = match depth - 1 {
                0 => vec![PathBuf::new()],
                above => {
                    present.iter().filter(|dir| dir.iter().count() == above).cloned().collect()
                }
            };
            for parent in parents {
                // What cannot be listed cannot be entered by the agent either.
                let entries = fs::read_dir(root.join(&parent)).into_iter().flatten().flatten();
                let dirs = entries.map(|entry| parent.join(entry.file_name()));
                present.extend(dirs.filter(|dir| glob.is_match(dir) && is_dir(dir)));
            }
        }
        present
    }
}

/// Compiles what leads to a pattern; none where its parts do not stand for themselves.
fn one_way(pattern: &str, case: Case) -> Option<GlobMatcher> {
    glob(pattern, case).ok().map(|glob| glob.compile_matcher())
}

impl Described {
    fn key(&self) -> (usize, &str) {
        (self.depth, self.glob.glob().glob())
    }
}

impl PartialEq for Described {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Described {}

impl PartialOrd for Described {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Described {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(patterns: &[&str]) -> Leads {
        let patterns: Vec<PathGlob> = patterns.iter().map(|word| word.parse().unwrap()).collect();
        Leads::of(patterns.iter())
    }

    #[test]
    fn a_pattern_leads_through_the_directories_above_what_it_matches() {
        let some =
            leads(&[".vscode/tasks.json", ".github/workflows/**", "a/b/c/d", "m[ao]ds/*/hook"]);
        for dir in [".vscode", ".github", "a", "a/b", "a/b/c", "mads", "mods", "mods/one"] {
            assert!(some.contains(Path::new(dir)), "{dir}");
        }
        for dir in ["", "mods/one/two", "mids", ".github/workflows", "b", "one"] {
            assert!(!some.contains(Path::new(dir)), "{dir}");
            assert!(!some.reach_below(Path::new(dir)), "{dir}");
        }
    }

    #[test]
    fn from_where_a_pattern_matches_at_any_depth_nothing_leads_and_all_is_reached() {
        let (some, none) =
            (leads(&["a/*/**/key"]), leads(&["**/.env", "*.pem", "infra/**", ".env"]));
        assert!(some.contains(Path::new("a/x")) && !some.contains(Path::new("a/x/y")));
        for (dir, reaches) in [("a/x", true), ("a/x/y/z", true), ("a", false), ("b/x", false)] {
            assert_eq!(some.reach_below(Path::new(dir)), reaches, "{dir}");
            assert!(!none.contains(Path::new(dir)) && !none.reach_below(Path::new(dir)), "{dir}");
        }
        // A directory that is renamed to `a`, wherever, closes what is called `b` in it; braces
        // may stand for several parts.
        assert!(leads(&["**/a/b"]).reach_below(Path::new("x")));
        assert!(leads(&["{a/b,c}/d"]).reach_below(Path::new("c")));
    }

    #[test]
    fn what_is_there_is_found_part_by_part() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["mods/one/in", "mods/two", "mods/.x", "other/one", ".git/info"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        fs::write(root.path().join("mods/file"), "").unwrap();
        std::os::unix::fs::symlink("one", root.path().join("mods/link")).unwrap();
        let found = leads(&["mods/[!.]*/i?/hook", ".git/info/attributes", "no/*/x"]);
        let found = found.present(root.path());
        let expected = ["mods", "mods/one", "mods/two", "mods/one/in", ".git", ".git/info"];
        assert_eq!(found, expected.map(PathBuf::from).into());
    }
}
