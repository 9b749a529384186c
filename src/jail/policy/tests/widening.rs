//! The property behind "a project can only tighten".

use std::path::Path;

use kvro_proxy::rules::Decision;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::super::build::seal;
use super::super::meet::meet;
use super::super::*;
use super::draft;

const HOSTS: [&str; 9] = [
    "a.example",
    "a.example:443",
    "a.example:8443",
    "b.example:80",
    "*.example.com",
    "*.x.example.com",
    "x.example.com",
    "y.x.example.com:443",
    "*.example.com:443",
];
const SERVERS: [&str; 6] =
    ["a.example", "b.example", "example.com", "x.example.com", "y.x.example.com", "z.example.com"];
const PORTS: [u16; 4] = [80, 443, 8443, 22];
const PATHS: [&str; 6] = [".", "src", "src/deep", "~/data", "~/data/in", "/srv/x"];
const FULL: [&str; 8] = [
    "/w",
    "/w/src",
    "/w/src/deep/f",
    "/w/other",
    "/home/u/data/f",
    "/home/u/data/in/f",
    "/srv/x/f",
    "/srv/y",
];
// No text says the opposite of itself.
const HIDDEN: [&str; 6] = ["**/.env", "!a/.env", "*.pem", "!a.pem", "secrets", "!s*"];
const PROTECTED: [&str; 6] =
    ["infra/**", "!infra/README.md", "./.env", "!.en*", "**/a.pem", "!secrets/*"];
const NAMES: [&str; 6] = [".env", "a/.env", "infra/README.md", "infra/x", "a.pem", "secrets/a.pem"];
const VARIABLES: [&str; 5] = ["A", "A_*", "!A_B", "*", "!A"];
const BLOCKS: [&str; 4] = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "127.0.0.1/32"];

fn words(from: &'static [&'static str]) -> impl Strategy<Value = String> {
    subsequence(from, 0..=from.len()).prop_shuffle().prop_map(|words| format!("{words:?}"))
}

/// `key = value`, or nothing.
fn line(key: &'static str, value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    proptest::option::of(value)
        .prop_map(move |value| value.map_or(String::new(), |value| format!("{key} = {value}\n")))
}

fn number(key: &'static str) -> impl Strategy<Value = String> {
    line(key, (1..9_u64).prop_map(|n| n.to_string()))
}

fn text() -> impl Strategy<Value = String> {
    let fs = (
        line("write", words(&PATHS)),
        line("read", words(&PATHS)),
        line("hide", words(&HIDDEN)),
        line("protect", words(&PROTECTED)),
    );
    let net = (
        line("mode", select(vec!["\"closed\"".to_owned(), "\"proxy\"".to_owned()])),
        line("allow", words(&HOSTS)),
        line("deny", words(&HOSTS)),
        line("danger_private", words(&BLOCKS)),
    );
    let limits = (number("max_turns"), number("max_tokens"), number("max_context_tokens"));
    let rest = (number("pids"), line("pass", words(&VARIABLES)));
    (fs, net, limits, rest).prop_map(|(fs, net, limits, rest)| {
        format!(
            "version = 1\n[fs]\n{}{}{}{}[net]\n{}{}{}{}[limits]\n{}{}{}[resources]\n{}[env]\n{}",
            fs.0,
            fs.1,
            fs.2,
            fs.3,
            net.0,
            net.1,
            net.2,
            net.3,
            limits.0,
            limits.1,
            limits.2,
            rest.0,
            rest.1,
        )
    })
}

/// Everything that `policy` grants, as sentences; and what it withholds must not be among them.
fn grants(policy: &Policy) -> Vec<String> {
    let mut all = Vec::new();
    for name in SERVERS {
        for port in PORTS {
            let server = format!("{name}:{port}").parse().unwrap();
            if matches!(policy.net.judge(&server).0, Decision::Allow(_)) {
                all.push(format!("reach {server}"));
            }
        }
    }
    for path in FULL.map(Path::new) {
        let written = policy.files.writable(path).map(|_| format!("write {}", path.display()));
        let read = policy.files.readable(path).map(|_| format!("read {}", path.display()));
        all.extend(written.into_iter().chain(read));
    }
    for path in NAMES.map(Path::new) {
        let seen = policy.files.hide.covers(path).is_none();
        let changed = policy.files.protect.covers(path).is_none();
        all.extend(seen.then(|| format!("see {}", path.display())));
        all.extend(changed.then(|| format!("change {}", path.display())));
    }
    for name in ["A", "A_B", "A_C", "B"] {
        all.extend(policy.env.lets_in(name.as_ref()).then(|| format!("variable {name}")));
    }
    for block in BLOCKS.map(|block| block.parse::<ipnet::IpNet>().unwrap()) {
        let dialled = policy.net.danger_private.iter().any(|e| e.value.contains(&block));
        all.extend(dialled.then(|| format!("dial {block}")));
    }
    all
}

/// A ceiling as a number: none is above all.
fn height(limit: Option<u64>) -> u64 {
    limit.unwrap_or(u64::MAX)
}

fn heights(policy: &Policy) -> [u64; 4] {
    let limits = &policy.limits;
    let all =
        [limits.max_turns, limits.max_tokens, limits.max_context_tokens, policy.resources.pids];
    all.map(height)
}

proptest! {
    // Compiling patterns takes most of the time; more cases would take seconds.
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_child_policy_never_widens_its_parent(child in text(), parent in text()) {
        let child = seal(draft(&child).unwrap());
        let parent = draft(&parent).unwrap();
        let (met, _) = meet(child.clone(), &parent.clone().complete());
        let parent = seal(parent);
        let (of_child, of_parent) = (grants(&child), grants(&parent));
        for grant in grants(&met) {
            prop_assert!(of_parent.contains(&grant), "the parent does not grant: {grant}");
            prop_assert!(of_child.contains(&grant), "the child does not grant: {grant}");
        }
        for (met, (own, cap)) in
            heights(&met).into_iter().zip(heights(&child).into_iter().zip(heights(&parent)))
        {
            prop_assert_eq!(met, own.min(cap));
        }
    }

    #[test]
    fn what_both_grant_is_granted(child in text(), parent in text()) {
        let child = seal(draft(&child).unwrap());
        let parent = draft(&parent).unwrap();
        let (met, _) = meet(child.clone(), &parent.clone().complete());
        let (of_parent, of_met) = (grants(&seal(parent)), grants(&met));
        // Reading that one side grants only by writing is lost with the writing.
        let kept = |grant: &&String| of_parent.contains(grant) && !grant.starts_with("read ");
        for grant in grants(&child).iter().filter(kept) {
            prop_assert!(of_met.contains(grant), "lost although both grant it: {grant}");
        }
    }

    #[test]
    fn a_ceiling_that_says_nothing_changes_nothing(child in text()) {
        let child = seal(draft(&child).unwrap());
        let (met, lost) = meet(child.clone(), &draft("version = 1").unwrap());
        prop_assert_eq!(met, child);
        prop_assert_eq!(lost, vec![]);
    }
}
