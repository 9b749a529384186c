//! What a change of a repository's configuration means for whoever runs git there later.
//!
//! Everyday git writes branches, remotes, submodules and who the user is. Other keys name programs
//! that git runs, or lead git to other files and servers. What this list does not know is said to
//! be unknown, and whoever guards a configuration refuses that as well.

use std::collections::BTreeMap;

use super::config::{Key, NotAConfig, Variable, parse};

/// What a setting does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Everyday work.
    Harmless,
    /// Nothing is known about the key.
    Unknown,
    /// It leads git elsewhere: to another server, directory or file.
    Redirects,
    /// It names a program that git runs, or a file that can name one.
    Runs,
}

/// One key that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    /// `None` where it was taken away, or stands alone.
    pub value: Option<Vec<u8>>,
    pub effect: Effect,
}

/// The keys that `after` has anew, has with another value, or no longer has, in the order of their
/// names.
///
/// A `before` that git cannot read counts as empty. An `after` that git cannot read is an error.
pub fn changes(before: &[u8], after: &[u8]) -> Result<Vec<Change>, NotAConfig> {
    let before = by_key(parse(before).unwrap_or_default());
    let after = by_key(parse(after)?);
    let mut changes = Vec::new();
    for (key, values) in &after {
        let known = before.get(key).map_or(&[][..], Vec::as_slice);
        if values == known {
            continue;
        }
        // The last value wins, so an old one at another place is a change, too.
        let is_new = |value: &&Option<Vec<u8>>| !known.contains(*value);
        let fresh: Vec<_> = values.iter().filter(is_new).collect();
        let told = if fresh.is_empty() { values.iter().collect() } else { fresh };
        for value in told {
            let variable = Variable { key: key.clone(), value: value.clone() };
            let effect = effect(&variable);
            changes.push(Change { key: variable.key, value: variable.value, effect });
        }
    }
    for (key, values) in &before {
        if after.contains_key(key) {
            continue;
        }
        let effect_of = |value: &Option<Vec<u8>>| {
            effect(&Variable { key: key.clone(), value: value.clone() }).min(Effect::Redirects)
        };
        let effect = values.iter().map(effect_of).max().unwrap_or(Effect::Unknown);
        changes.push(Change { key: key.clone(), value: None, effect });
    }
    changes.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(changes)
}

fn by_key(variables: Vec<Variable>) -> BTreeMap<Key, Vec<Option<Vec<u8>>>> {
    let mut keys: BTreeMap<Key, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    for Variable { key, value } in variables {
        keys.entry(key).or_default().push(value);
    }
    keys
}

/// What `variable` does where git reads it.
#[must_use]
pub fn effect(variable: &Variable) -> Effect {
    let Variable { key, value } = variable;
    let value = value.as_deref();
    let (section, name) = (key.section.as_str(), key.name.as_str());
    if key.subsection.is_some() {
        of_named(section, name, value)
    } else {
        plain(section, name, value)
    }
}

/// `section.name`.
fn plain(section: &str, name: &str, value: Option<&[u8]>) -> Effect {
    use Effect::{Harmless, Redirects, Runs, Unknown};
    match (section, name) {
        ("core", "fsmonitor") | ("pager", _) if is_boolean(value) => Harmless,
        (
            "core",
            "fsmonitor"
            | "hookspath"
            | "sshcommand"
            | "editor"
            | "pager"
            | "askpass"
            | "gitproxy"
            | "alternaterefscommand",
        ) => Runs,
        ("core", "worktree" | "attributesfile" | "excludesfile") => Redirects,
        (
            "core",
            "abbrev"
            | "autocrlf"
            | "bare"
            | "bigfilethreshold"
            | "checkstat"
            | "commentchar"
            | "commitgraph"
            | "compression"
            | "eol"
            | "filemode"
            | "fsync"
            | "fsyncmethod"
            | "ignorecase"
            | "logallrefupdates"
            | "loosecompression"
            | "multipackindex"
            | "precomposeunicode"
            | "preloadindex"
            | "protecthfs"
            | "protectntfs"
            | "quotepath"
            | "repositoryformatversion"
            | "safecrlf"
            | "sharedrepository"
            | "sparsecheckout"
            | "sparsecheckoutcone"
            | "splitindex"
            | "symlinks"
            | "trustctime"
            | "untrackedcache"
            | "usereplacerefs"
            | "whitespace",
        ) => Harmless,
        ("user", "email" | "name" | "signingkey" | "useconfigonly")
        | ("author" | "committer", "email" | "name")
        | (
            "advice" | "branch" | "color" | "column" | "extensions" | "fetch" | "index" | "push",
            _,
        )
        | ("pull" | "rerere" | "stash" | "status" | "tag", _)
        | ("remote", "pushdefault")
        | ("submodule", "active" | "fetchjobs" | "recurse") => Harmless,
        ("pager" | "include" | "protocol" | "man" | "help" | "web" | "instaweb", _)
        | ("sendemail" | "imap" | "credential" | "browser" | "difftool" | "mergetool", _)
        | ("diff", "external")
        | ("sequence", "editor")
        | ("interactive", "difffilter")
        | ("gpg", "program")
        | ("init", "templatedir")
        | ("uploadpack", "packobjectshook")
        | ("lfs", "standalonetransferagent") => Runs,
        ("alias", _) => {
            if starts_a_shell(value) {
                Runs
            } else {
                Unknown
            }
        }
        ("http" | "https" | "url", _) | ("lfs", "url" | "pushurl") => Redirects,
        _ => Unknown,
    }
}

/// `section.something.name`.
fn of_named(section: &str, name: &str, value: Option<&[u8]>) -> Effect {
    use Effect::{Harmless, Redirects, Runs, Unknown};
    match (section, name) {
        ("branch", "remote" | "pushremote") | ("remote", "url" | "pushurl") => by_transport(value),
        ("branch", _)
        | (
            "remote",
            "fetch" | "push" | "tagopt" | "prune" | "prunetags" | "mirror" | "promisor"
            | "partialclonefilter" | "skipdefaultupdate" | "skipfetchall" | "followremotehead",
        )
        | ("submodule", "active" | "branch" | "fetchrecursesubmodules" | "ignore")
        | ("filter", "required")
        | ("credential", "usehttppath" | "username")
        | ("lfs", "access" | "locksverify") => Harmless,
        ("submodule", "url") => by_transport(value),
        ("submodule", "update") => {
            if starts_a_shell(value) {
                Runs
            } else {
                Harmless
            }
        }
        ("remote", "vcs" | "uploadpack" | "receivepack")
        | ("alias" | "filter" | "includeif" | "include" | "protocol" | "man" | "browser", _)
        | ("credential" | "gpg" | "tar" | "guitool" | "difftool" | "mergetool" | "trailer", _)
        | ("diff", "command" | "textconv")
        | ("merge", "driver")
        | ("sendemail" | "hook", _)
        | ("lfs", "path" | "clean" | "smudge") => Runs,
        ("diff" | "merge", _) => Harmless,
        // `url.ext::….insteadOf` names a program where an address stood.
        ("url" | "http" | "remote", _) => Redirects,
        _ => Unknown,
    }
}

/// `ext::sh -c …` is no address but a program.
fn by_transport(value: Option<&[u8]>) -> Effect {
    let value = value.unwrap_or_default();
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let scheme = value.iter().take_while(|byte| is_scheme(byte)).count();
    let names_a_helper = scheme > 0 && value.get(scheme..).is_some_and(|r| r.starts_with(b"::"));
    // A leading dash would be an option to a program that git runs.
    if names_a_helper || value.starts_with(b"-") { Effect::Runs } else { Effect::Harmless }
}

fn starts_a_shell(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| value.trim_ascii_start().starts_with(b"!"))
}

/// Whether git takes a value for a truth or a number. A number that does not fit its int is none, and
/// where a program may stand it is the name of one.
fn is_boolean(value: Option<&[u8]>) -> bool {
    let Some(value) = value else { return true };
    let words: [&[u8]; 7] = [b"", b"true", b"yes", b"on", b"false", b"no", b"off"];
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
        || value.iter().all(u8::is_ascii_digit)
            && str::from_utf8(value).is_ok_and(|digits| digits.parse::<i32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(text: &str) -> Vec<Effect> {
        parse(text.as_bytes()).unwrap().iter().map(effect).collect()
    }

    #[test]
    fn a_number_that_git_cannot_hold_is_a_program() {
        for (value, effect) in [
            ("2147483647", Effect::Harmless),
            ("2147483648", Effect::Runs),
            ("99999999999999999999", Effect::Runs),
        ] {
            assert_eq!(effects(&format!("[core] fsmonitor = {value}")), [effect], "{value}");
            assert_eq!(effects(&format!("[pager] log = {value}")), [effect], "{value}");
        }
    }

    #[test]
    fn everyday_git_is_harmless() {
        let text = r#"
            [core] repositoryformatversion = 0
            filemode = true
            fsmonitor = true
            sparseCheckout
            [branch "topic/x"] remote = origin
            merge = refs/heads/topic/x
            rebase = true
            [remote "origin"] url = git@x.example:a/b.git
            url = https://x.example/a::b
            url = ../other
            pushurl = ssh://x.example/a
            fetch = +refs/heads/*:refs/remotes/origin/*
            [submodule "lib"] url = ../lib
            active = true
            update = rebase
            [user] name = A
            email = a@b.example
            [extensions] worktreeConfig = true
            [push] autoSetupRemote = true
            [pager] log = false
        "#;
        let told = effects(text);
        assert_eq!(told, vec![Effect::Harmless; told.len()]);
    }

    #[test]
    fn keys_that_run_programs_are_told() {
        for line in [
            "[core] fsmonitor = x",
            "[core] hooksPath = x",
            "[core] sshCommand = x",
            "[core] editor = x",
            "[core] pager = x",
            "[core] askPass = x",
            "[core] gitProxy = x",
            "[pager] status = x",
            "[alias] st = !x",
            "[alias \"st\"] command = !x",
            "[filter \"a\"] clean = x",
            "[filter \"a\"] smudge = x",
            "[filter \"a\"] process = x",
            "[diff \"a\"] command = x",
            "[diff \"a\"] textconv = x",
            "[diff] external = x",
            "[difftool \"a\"] cmd = x",
            "[merge \"a\"] driver = x",
            "[mergetool \"a\"] cmd = x",
            "[credential] helper = x",
            "[credential \"https://x.example\"] helper = !x",
            "[include] path = x",
            "[includeIf \"gitdir:/\"] path = x",
            "[gpg] program = x",
            "[gpg \"ssh\"] defaultKeyCommand = x",
            "[remote \"o\"] vcs = x",
            "[remote \"o\"] uploadpack = x",
            "[remote \"o\"] receivepack = x",
            "[remote \"o\"] url = ext::sh -c x",
            "[branch \"b\"] remote = ext::sh -c x",
            "[submodule \"s\"] update = !x",
            "[protocol \"ext\"] allow = always",
            "[protocol] allow = always",
            "[sequence] editor = x",
            "[interactive] diffFilter = x",
            "[uploadpack] packObjectsHook = x",
            "[init] templateDir = x",
            "[trailer \"t\"] command = x",
            "[sendemail] smtpServer = /x",
            "[lfs \"customtransfer.x\"] path = x",
        ] {
            assert_eq!(effects(line), [Effect::Runs], "{line}");
        }
    }

    #[test]
    fn keys_that_lead_elsewhere_and_unknown_ones_are_told_apart() {
        for line in [
            "[core] worktree = x",
            "[core] attributesFile = x",
            "[url \"https://evil.example/\"] insteadOf = https://x.example/",
            "[url \"x\"] pushInsteadOf = y",
            "[remote \"o\"] proxy = x",
            "[http] proxy = x",
            "[http \"https://x.example\"] sslVerify = false",
        ] {
            assert_eq!(effects(line), [Effect::Redirects], "{line}");
        }
        for line in ["[alias] st = status", "[core \"x\"] bare = true", "[new] thing = 1"] {
            assert_eq!(effects(line), [Effect::Unknown], "{line}");
        }
    }

    fn changed(before: &str, after: &str) -> Vec<(String, Option<String>, Effect)> {
        let told = changes(before.as_bytes(), after.as_bytes()).unwrap().into_iter();
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        told.map(|c| (c.key.to_string(), c.value.map(text), c.effect)).collect()
    }

    fn change(key: &str, value: Option<&str>, effect: Effect) -> (String, Option<String>, Effect) {
        (key.to_owned(), value.map(str::to_owned), effect)
    }

    #[test]
    fn only_what_changed_is_told() {
        let before = "[core] fsmonitor = mine\n[remote \"o\"] url = a\n";
        assert_eq!(changed(before, before), []);
        // Written in another way it is the same.
        assert_eq!(changed(before, "[remote \"o\"]\nurl=\"a\"\n[CORE]\nFSMONITOR=mine"), []);
        let after = format!("{before}[branch \"x\"] remote = o\n[core] fsmonitor = evil\n");
        assert_eq!(
            changed(before, &after),
            [
                change("branch.x.remote", Some("o"), Effect::Harmless),
                change("core.fsmonitor", Some("evil"), Effect::Runs),
            ]
        );
    }

    #[test]
    fn an_order_that_changes_and_a_key_that_is_gone_are_told() {
        let (one, other) = ("[core] pager = a\npager = b", "[core] pager = b\npager = a");
        assert_eq!(
            changed(one, other),
            [
                change("core.pager", Some("b"), Effect::Runs),
                change("core.pager", Some("a"), Effect::Runs),
            ]
        );
        assert_eq!(
            changed("[core] hooksPath = mine\n[branch \"x\"] remote = o", ""),
            [
                change("branch.x.remote", None, Effect::Harmless),
                change("core.hookspath", None, Effect::Redirects),
            ]
        );
    }

    #[test]
    fn a_text_that_git_cannot_read_is_an_error_only_as_the_new_one() {
        assert_eq!(changes(b"[core]\na=1", b"[core"), Err(NotAConfig { line: 1 }));
        assert_eq!(changed("[core", "[core] bare"), [change("core.bare", None, Effect::Harmless)]);
    }
}
