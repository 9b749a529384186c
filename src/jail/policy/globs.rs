//! Patterns over the paths of a workspace.
//!
//! The rules are those of a `.gitignore`, which everybody knows: a pattern without a slash matches
//! at any depth, the last match wins, `!` takes back, and nothing below a matched directory can be
//! taken back. Patterns are always relative to the workspace, and `./` holds one at its root.
//!
//! A pattern that begins with `.git/` speaks of the git directory of every repository: see
//! [`Cover::in_repositories`].

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobBuilder, GlobMatcher};

use super::entry::{Entry, Origin};
use super::leads::Leads;

/// One pattern as it was typed.
///
/// Its matchers are compiled when they are first asked for: most runs only need the set of all
/// patterns, which the walk over the workspace compiles at once.
#[derive(Debug, Clone)]
pub struct PathGlob {
    typed: String,
    effect: Effect,
    glob: Lazy,
    /// For `dir/**`: matches `dir` itself, the smallest unit that covers all of it.
    unit: Option<Lazy>,
    /// The pattern without its mark and, for `dir/**`, without its tail.
    body: String,
    case: Case,
}

/// A glob whose matcher is shared by all copies of the pattern.
#[derive(Debug, Clone)]
struct Lazy {
    glob: Glob,
    matcher: Arc<OnceLock<GlobMatcher>>,
}

impl Lazy {
    fn new(glob: Glob) -> Self {
        Self { glob, matcher: Arc::default() }
    }

    fn is_match(&self, path: &Path) -> bool {
        self.matcher.get_or_init(|| self.glob.compile_matcher()).is_match(path)
    }
}

/// What a match means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Match,
    TakeBack,
}

/// A text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("a pattern, or a part of it between slashes, is empty")]
    Empty,
    #[error("it would cover the whole workspace")]
    WholeWorkspace,
    #[error("a pattern is relative to the workspace and stays below it")]
    Outside,
    #[error("a pattern has at most {MAX_LEN} bytes")]
    TooLong,
    #[error("{0}")]
    Syntax(String),
}

/// Keeps what a pattern compiles to far below the limit at which compiling gives up.
const MAX_LEN: usize = 1_000;

impl FromStr for PathGlob {
    type Err = GlobError;

    fn from_str(typed: &str) -> Result<Self, GlobError> {
        let (effect, rest) = match typed.strip_prefix('!') {
            Some(rest) => (Effect::TakeBack, rest),
            None => (Effect::Match, typed),
        };
        if rest.starts_with('/') || rest.starts_with('~') {
            return Err(GlobError::Outside);
        }
        let is_at_root = rest.starts_with("./");
        let rest = rest.trim_start_matches("./").trim_end_matches('/');
        if rest.is_empty() {
            return Err(GlobError::Empty);
        }
        if rest.len() > MAX_LEN {
            return Err(GlobError::TooLong);
        }
        if rest.split('/').any(|part| part == "..") {
            return Err(GlobError::Outside);
        }
        if rest.split('/').all(|part| matches!(part, "." | "*" | "**")) {
            return Err(GlobError::WholeWorkspace);
        }
        if rest.split('/').any(|part| matches!(part, "" | ".")) {
            return Err(GlobError::Empty);
        }
        let anchor = if is_at_root || rest.contains('/') { Anchor::Root } else { Anchor::Anywhere };
        Self::new(typed.to_owned(), effect, rest, anchor)
    }
}

/// Where a pattern can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Root,
    Anywhere,
}

/// Whether names in another case are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Told,
    Folded,
}

/// A pattern as all of ours are meant.
pub(super) fn glob(pattern: &str, case: Case) -> Result<Glob, GlobError> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(case == Case::Folded)
        .build()
        .map_err(|error| GlobError::Syntax(error.kind().to_string()))
}

fn compile(pattern: &str, case: Case) -> Result<Lazy, GlobError> {
    glob(pattern, case).map(Lazy::new)
}

/// Whether a pattern, or a part of one, stands for itself alone.
pub(crate) fn is_literal(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', '{', '\\'])
}

impl PathGlob {
    fn new(typed: String, effect: Effect, rest: &str, anchor: Anchor) -> Result<Self, GlobError> {
        let unit = rest.strip_suffix("/**");
        let anchored = |pattern: &str| match anchor {
            Anchor::Root => compile(pattern, Case::Told),
            Anchor::Anywhere => compile(&format!("**/{pattern}"), Case::Told),
        };
        Ok(Self {
            typed,
            effect,
            glob: anchored(rest)?,
            unit: unit.map(anchored).transpose()?,
            body: unit.unwrap_or(rest).to_owned(),
            case: Case::Told,
        })
    }

    /// The same pattern where names in another case are the same.
    fn folded(&self) -> Self {
        // What compiled once compiles again.
        let fold = |lazy: &Lazy| {
            compile(lazy.glob.glob(), Case::Folded).unwrap_or_else(|_never| lazy.clone())
        };
        let (glob, unit) = (fold(&self.glob), self.unit.as_ref().map(fold));
        Self { glob, unit, case: Case::Folded, ..self.clone() }
    }

    /// The pattern for everything below `dir`, a path relative to the workspace and not empty.
    pub(crate) fn below(dir: &Path) -> Result<Self, GlobError> {
        Self::made(format!("{}/**", literally(dir)))
    }

    /// The pattern for `path` alone, which is relative to the workspace.
    fn at(path: &Path) -> Result<Self, GlobError> {
        Self::made(literally(path))
    }

    fn made(pattern: String) -> Result<Self, GlobError> {
        Self::new(pattern.clone(), Effect::Match, &pattern, Anchor::Root)
    }

    /// What stands behind `.git/` in a pattern that speaks of git directories.
    pub(crate) fn in_git_directory(&self) -> Option<&str> {
        let pattern = self.typed.trim_start_matches('!').trim_start_matches("./");
        let pattern = pattern.strip_prefix("**/").unwrap_or(pattern);
        pattern.strip_prefix(".git/").map(|rest| rest.trim_end_matches('/'))
    }

    /// The same pattern for `git_dir` alone. `None` where that would be the whole workspace.
    fn for_git_directory(&self, git_dir: &Path) -> Option<Self> {
        let rest = self.in_git_directory()?;
        let pattern = if git_dir.as_os_str().is_empty() {
            rest.to_owned()
        } else {
            format!("{}/{rest}", literally(git_dir))
        };
        let mark = if self.takes_back() { "!" } else { "" };
        let is_whole = pattern.split('/').all(|part| matches!(part, "*" | "**"));
        let made = Self::new(format!("{mark}{pattern}"), self.effect, &pattern, Anchor::Root);
        // It compiled with `.git` in this place, and a literal path adds nothing to go wrong.
        let made = made.ok().filter(|_| !is_whole)?;
        Some(if self.case == Case::Folded { made.folded() } else { made })
    }

    /// Whether it takes back what an earlier pattern matched.
    #[must_use]
    pub fn takes_back(&self) -> bool {
        self.effect == Effect::TakeBack
    }

    /// Whether one of the two takes back exactly what the other matches.
    pub(super) fn is_opposite(&self, other: &Self) -> bool {
        self.effect != other.effect && self.glob.glob == other.glob.glob
    }

    /// Whether both match, and the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.effect == other.effect && self.glob.glob == other.glob.glob
    }

    /// The directory that `earlier` covers whole, so that nothing below it can be taken back by
    /// this pattern.
    pub(super) fn is_in_vain_after(&self, earlier: &Self) -> Option<PathBuf> {
        let is_back = self.takes_back() && !earlier.takes_back();
        let leads = if is_back { Leads::of([self].into_iter()) } else { Leads::default() };
        leads.spelled().find(|dir| earlier.is_match(dir)).cloned()
    }

    fn is_match(&self, path: &Path) -> bool {
        self.glob.is_match(path)
    }

    /// What it matches, without its mark and the tail of `dir/**`.
    pub(super) fn body(&self) -> &str {
        &self.body
    }

    pub(super) fn case(&self) -> Case {
        self.case
    }

    fn is_unit(&self, path: &Path) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.is_match(path))
    }

    /// Whether it could match something below the directory `dir`. Errs towards yes.
    fn may_reach_below(&self, dir: &Path) -> bool {
        if !self.body.contains('/') || self.body.starts_with("**") {
            return true;
        }
        let own = self.body.split('/').take_while(|part| is_literal(part));
        let is_same = |own: &str, theirs: &OsStr| match self.case {
            Case::Told => theirs == own,
            Case::Folded => theirs.to_string_lossy().to_lowercase() == own.to_lowercase(),
        };
        own.zip(dir.components()).all(|(own, theirs)| is_same(own, theirs.as_os_str()))
    }
}

/// A pattern that matches `path` and, where it is not UTF-8, what differs in those bytes only.
fn literally(path: &Path) -> String {
    let mut pattern = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | ',' | '\\' | '!') {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.extend(chunk.invalid().iter().map(|_| '?'));
    }
    pattern
}

/// Two patterns are the same when they were typed the same.
impl PartialEq for PathGlob {
    fn eq(&self, other: &Self) -> bool {
        self.typed == other.typed
    }
}

impl Eq for PathGlob {}

/// As it was typed.
impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

/// The layer of what is said of every repository.
const GIT: &str = "builtin:git";

impl Entry<PathGlob> {
    /// That `dir`, which a repository names as the place of its hooks, is protected.
    pub(crate) fn hooks_path(dir: &Path) -> Option<Self> {
        let why = "core.hooksPath names it, and git runs hooks on the host.";
        Some(Self::built_in("core.hooksPath", PathGlob::below(dir).ok()?, why))
    }

    /// That `.git` at `path`, which is a pointer to a repository, is protected.
    pub(crate) fn pointer(path: &Path) -> Option<Self> {
        let why = "It leads git to a repository, its configuration and its hooks.";
        Some(Self::built_in(GIT, PathGlob::at(path).ok()?, why))
    }

    /// What the program itself says.
    fn built_in(layer: &str, value: PathGlob, why: &str) -> Self {
        let origin = Origin { layer: layer.into(), line: 0 };
        Self { value, why: Some(why.into()), origin }
    }
}

/// The patterns of one authority, in order.
pub type GlobList = Vec<Entry<PathGlob>>;

/// Restrictions of several authorities: a path is covered when any of them covers it, so that none
/// can take back what another said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cover {
    pub(super) lists: Vec<GlobList>,
}

impl Cover {
    /// What is said of every repository: patterns, each with its reason. What is no pattern is left
    /// out.
    #[must_use]
    pub fn of_git(patterns: &[(&str, &str)]) -> Self {
        let entries = patterns
            .iter()
            .filter_map(|(pattern, why)| Some(Entry::built_in(GIT, pattern.parse().ok()?, why)));
        Self { lists: vec![entries.collect()] }
    }

    #[must_use]
    pub const fn lists(&self) -> &[GlobList] {
        self.lists.as_slice()
    }

    /// The patterns as they hold where the git directories of the repositories are `git_dirs`,
    /// relative to the workspace.
    ///
    /// A pattern that begins with `.git/` becomes one for each of them: a submodule's is somewhere
    /// in `.git/modules`, where a branch may be called `hooks`, and a linked worktree's elsewhere.
    /// A repository that is not among them is none that such a pattern speaks of.
    #[must_use]
    pub fn in_repositories(&self, git_dirs: &BTreeSet<PathBuf>) -> Self {
        let expand = |entry: &Entry<PathGlob>| -> GlobList {
            if entry.value.in_git_directory().is_none() {
                return vec![entry.clone()];
            }
            let patterns = git_dirs.iter().filter_map(|dir| entry.value.for_git_directory(dir));
            patterns.map(|value| entry.clone().map(|_| value)).collect()
        };
        let lists = self.lists.iter().map(|list| list.iter().flat_map(expand).collect());
        Self { lists: lists.collect() }
    }

    /// The same where names in another case are the same.
    pub(crate) fn folded(&self) -> Self {
        let fold = |entry: &Entry<PathGlob>| entry.clone().map(|glob| glob.folded());
        Self { lists: self.lists.iter().map(|list| list.iter().map(fold).collect()).collect() }
    }

    pub(super) fn folds_case(&self) -> bool {
        self.patterns().any(|glob| glob.case == Case::Folded)
    }

    /// What each of `lists` says.
    pub(crate) const fn of(lists: Vec<GlobList>) -> Self {
        Self { lists }
    }

    /// Covers what `list` says as well.
    pub(crate) fn add(&mut self, list: GlobList) {
        self.lists.push(list);
    }

    /// Every glob that can make something covered: what none of them matches, nothing here covers.
    pub(crate) fn globs(&self) -> impl Iterator<Item = &Glob> + Clone {
        self.patterns().flat_map(|glob| glob.unit.iter().chain([&glob.glob])).map(|lazy| &lazy.glob)
    }

    /// Every pattern that can make something covered.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &PathGlob> + Clone {
        let all = self.lists.iter().flatten().map(|entry| &entry.value);
        all.filter(|glob| glob.effect == Effect::Match)
    }

    /// The pattern that covers exactly this path as a unit, its ancestors left out.
    #[must_use]
    pub fn covers_unit(&self, path: &Path) -> Option<&Entry<PathGlob>> {
        self.lists.iter().find_map(|list| covers_unit(list, path))
    }

    /// The pattern that covers `path`, a path relative to the workspace, by itself or by one of
    /// the directories above it.
    #[must_use]
    pub fn covers(&self, path: &Path) -> Option<&Entry<PathGlob>> {
        let mut unit = PathBuf::new();
        path.components().filter(|part| matches!(part, Component::Normal(_))).find_map(|part| {
            unit.push(part);
            self.covers_unit(&unit)
        })
    }
}

fn covers_unit<'l>(list: &'l GlobList, path: &Path) -> Option<&'l Entry<PathGlob>> {
    for (at, entry) in list.iter().enumerate().rev() {
        let glob = &entry.value;
        let hit = match glob.effect {
            Effect::TakeBack => glob.is_match(path),
            // `dir/**` covers `dir` itself unless something below it is taken back later.
            Effect::Match => {
                glob.is_match(path)
                    || glob.is_unit(path)
                        && !list[at + 1..].iter().any(|later| {
                            later.value.takes_back() && later.value.may_reach_below(path)
                        })
            }
        };
        if hit {
            return (!glob.takes_back()).then_some(entry);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover(words: &[&str]) -> Cover {
        let list = words.iter().map(|word| Entry::typed(word.parse().unwrap())).collect();
        Cover { lists: vec![list] }
    }

    fn rule<'c>(cover: &'c Cover, path: &str) -> Option<&'c str> {
        cover.covers(Path::new(path)).map(|entry| entry.value.typed.as_str())
    }

    #[test]
    fn the_last_match_wins_and_a_mark_takes_back() {
        let hide = cover(&["**/.env", "**/.env.*", "!**/.env.example", "**/*.tfstate"]);
        assert_eq!(rule(&hide, ".env"), Some("**/.env"));
        assert_eq!(rule(&hide, "a/b/.env"), Some("**/.env"));
        assert_eq!(rule(&hide, ".env.local"), Some("**/.env.*"));
        assert_eq!(rule(&hide, "a/.env.example"), None);
        assert_eq!(rule(&hide, "x/terraform.tfstate"), Some("**/*.tfstate"));
        assert_eq!(rule(&hide, "src/main.rs"), None);
    }

    #[test]
    fn a_directory_pattern_covers_the_directory_as_one_unit() {
        let protect = cover(&["infra/**", ".git/hooks/**", "**/certs/**"]);
        for unit in ["infra", ".git/hooks", "certs", "a/certs"] {
            assert!(protect.covers_unit(Path::new(unit)).is_some(), "{unit}");
        }
        for free in [".git", "a", "a/infra", "infrared"] {
            assert_eq!(rule(&protect, free), None, "{free}");
        }
        assert_eq!(rule(&protect, "infra/production/main.tf"), Some("infra/**"));
    }

    #[test]
    fn a_pattern_without_a_slash_matches_at_any_depth() {
        let hide = cover(&["*.pem", "secrets/"]);
        assert_eq!(rule(&hide, "a/b/key.pem"), Some("*.pem"));
        assert_eq!(rule(&hide, "a/secrets/x"), Some("secrets/"));
        assert_eq!(rule(&cover(&["./a/b"]), "x/a/b"), None);
    }

    #[test]
    fn what_is_taken_back_inside_a_directory_stays_open() {
        let protect = cover(&["infra/**", "!infra/README.md"]);
        assert_eq!(protect.covers_unit(Path::new("infra")), None);
        assert_eq!(rule(&protect, "infra/README.md"), None);
        assert_eq!(rule(&protect, "infra/prod/main.tf"), Some("infra/**"));
        // Nothing below a directory that is matched by itself can be taken back.
        let whole = cover(&["infra", "!infra/README.md"]);
        assert_eq!(rule(&whole, "infra/README.md"), Some("infra"));
        // A pattern that cannot reach below the directory does not break the unit up.
        let other = cover(&["infra/**", "!docs/infra.md"]);
        assert_eq!(rule(&other, "infra"), Some("infra/**"));
    }

    #[test]
    fn a_dot_slash_holds_a_pattern_at_the_root() {
        let protect = cover(&["./.mcp.json"]);
        assert_eq!(rule(&protect, ".mcp.json"), Some("./.mcp.json"));
        assert_eq!(rule(&protect, "node_modules/x/.mcp.json"), None);
    }

    #[test]
    fn a_pattern_of_git_directories_speaks_of_each_there_is() {
        let protect = cover(&[".git/hooks/**", "**/.git/config", "infra/**"]);
        let there = |dirs: &[&str]| protect.in_repositories(&dirs.iter().map(Into::into).collect());
        let odd = Path::new(OsStr::from_bytes(b"od*d\\ \xff/.git"));
        let mut some = there(&[".git", ".git/modules/a[1]", "", "x/.git"]);
        some.lists.extend(there(&[]).lists);
        some.lists.extend(protect.in_repositories(&[odd.to_owned()].into()).lists);
        for path in [
            ".git/hooks/x",
            ".git/modules/a[1]/hooks",
            ".git/modules/a[1]/config",
            "hooks",
            "x/.git/config",
            "infra/x",
        ] {
            assert!(rule(&some, path).is_some(), "{path}");
        }
        assert!(some.covers(&odd.join("hooks/x")).is_some());
        for path in [".git/modules/a[1]/refs/heads/hooks", "y/.git/config", "z/hooks", ".git/HEAD"]
        {
            assert_eq!(rule(&some, path), None, "{path}");
        }
        // Where no repository is, one can be made.
        assert_eq!(rule(&there(&[]), ".git/config"), None);
        // Nothing makes the whole workspace a match.
        let all = cover(&[".git/**"]).in_repositories(&["".into(), "b".into()].into());
        assert_eq!((rule(&all, "x"), rule(&all, "b/HEAD")), (None, Some("b/**")));
    }

    #[test]
    fn where_names_fold_a_pattern_matches_in_every_case() {
        let told = cover(&["**/.env", "Infra/**", ".git/hooks/**", "!infra/README.md"]);
        let folded = told.folded().in_repositories(&[".git".into()].into());
        for path in [".ENV", "a/.Env", "infra/main.tf", "INFRA/x", ".GIT/Hooks/x"] {
            assert!(rule(&folded, path).is_some(), "{path}");
            assert!(rule(&told, path).is_none(), "{path}");
        }
        assert_eq!(rule(&folded, "INFRA/readme.MD"), None);
        let leads = Leads::of(folded.patterns());
        assert!(leads.contains(Path::new(".GIT")) && !leads.contains(Path::new("git")));
    }

    #[test]
    fn no_authority_takes_back_what_another_said() {
        let mut both = cover(&["**/.env"]);
        both.lists.extend(cover(&["**/.env", "!**/.env"]).lists);
        assert_eq!(rule(&both, ".env"), Some("**/.env"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let parse = |text: &str| text.parse::<PathGlob>().map(|_| ());
        assert_eq!(parse(""), Err(GlobError::Empty));
        assert_eq!(parse("!"), Err(GlobError::Empty));
        for whole in ["**", "*", ".", "./", "**/*", "!**", "**/**"] {
            assert!(parse(whole).is_err(), "{whole:?}");
        }
        for outside in ["/etc/passwd", "~/.ssh", "../x", "a/../../b"] {
            assert_eq!(parse(outside), Err(GlobError::Outside), "{outside:?}");
        }
        assert!(matches!(parse("a[b"), Err(GlobError::Syntax(_))));
    }
}
