//! Patterns over the paths of a workspace.
//!
//! The rules are those of a `.gitignore`, which everybody knows: a pattern without a slash matches
//! at any depth, the last match wins, `!` takes back, and nothing below a matched directory can be
//! taken back. Patterns are always relative to the workspace.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobBuilder, GlobMatcher};

use super::entry::Entry;

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
        let unit = rest.strip_suffix("/**");
        let body = unit.unwrap_or(rest);
        let anchor = |pattern: &str| {
            if rest.contains('/') { compile(pattern) } else { compile(&format!("**/{pattern}")) }
        };
        Ok(Self {
            typed: typed.to_owned(),
            effect,
            glob: anchor(rest)?,
            unit: unit.map(anchor).transpose()?,
            body: body.to_owned(),
        })
    }
}

fn compile(pattern: &str) -> Result<Lazy, GlobError> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(Lazy::new)
        .map_err(|error| GlobError::Syntax(error.kind().to_string()))
}

impl PathGlob {
    /// Whether it takes back what an earlier pattern matched.
    #[must_use]
    pub fn takes_back(&self) -> bool {
        self.effect == Effect::TakeBack
    }

    fn is_match(&self, path: &Path) -> bool {
        self.glob.is_match(path)
    }

    fn is_unit(&self, path: &Path) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.is_match(path))
    }

    /// The directories above what it matches, as far as it spells them out.
    fn leads(&self) -> Vec<PathBuf> {
        let literal = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
        let parts: Vec<&str> = self.body.split('/').collect();
        let above = parts.split_last().map_or(&[][..], |(_, above)| above);
        let mut dir = PathBuf::new();
        let dirs = above.iter().take_while(|part| literal(part)).map(|part| {
            dir.push(part);
            dir.clone()
        });
        dirs.collect()
    }

    /// Whether it could match something below the directory `dir`. Errs towards yes.
    fn may_reach_below(&self, dir: &Path) -> bool {
        if !self.body.contains('/') || self.body.starts_with("**") {
            return true;
        }
        let literal = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
        let own = self.body.split('/').take_while(literal);
        own.zip(dir.components()).all(|(own, theirs)| theirs.as_os_str() == own)
    }
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

/// The patterns of one authority, in order.
pub type GlobList = Vec<Entry<PathGlob>>;

/// Restrictions of several authorities: a path is covered when any of them covers it, so that none
/// can take back what another said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cover {
    pub(super) lists: Vec<GlobList>,
}

impl Cover {
    #[must_use]
    pub const fn lists(&self) -> &[GlobList] {
        self.lists.as_slice()
    }

    /// Every glob that can make something covered: what none of them matches, nothing here covers.
    pub(crate) fn globs(&self) -> impl Iterator<Item = &Glob> {
        let matching = self.lists.iter().flatten().map(|entry| &entry.value);
        let matching = matching.filter(|glob| glob.effect == Effect::Match);
        matching.flat_map(|glob| glob.unit.iter().chain([&glob.glob])).map(|lazy| &lazy.glob)
    }

    /// The directories that lead to what patterns spell out: `.git` for `.git/hooks/**`.
    pub(crate) fn leads(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let matching = self.lists.iter().flatten().map(|entry| &entry.value);
        matching.filter(|glob| glob.effect == Effect::Match).flat_map(PathGlob::leads)
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
