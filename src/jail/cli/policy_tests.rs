//! What the policy's subcommands print, on a made-up account.

use std::collections::BTreeMap;
use std::fs;

use clap::Parser;

use crate::cli::{explain, policy, profile};
use crate::surroundings::Surroundings;

#[derive(Debug, clap::Parser)]
enum Line {
    Policy(policy::PolicyArgs),
    Profile(profile::ProfileArgs),
    Explain(explain::ExplainArgs),
}

struct Account {
    _root: tempfile::TempDir,
    surroundings: Surroundings,
}

impl Account {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let cwd = home.join("project");
        fs::create_dir_all(&cwd).unwrap();
        let surroundings = Surroundings {
            config_home: home.join(".config"),
            state_home: home.join(".local/state"),
            etc: root.path().join("etc"),
            env: BTreeMap::new(),
            cwd,
            home,
        };
        Self { _root: root, surroundings }
    }

    fn project(&self, body: &str) {
        let path = self.surroundings.cwd.join("kvro-jail.toml");
        fs::write(path, format!("version = 1\n{body}")).unwrap();
    }

    /// The code and the output of `line`, with the project's path as `$P`.
    fn run(&self, line: &str) -> (u8, String) {
        let args = Line::try_parse_from(["kvro-jail"].into_iter().chain(line.split(' '))).unwrap();
        let mut out = Vec::new();
        let code = match args {
            Line::Policy(args) => policy::run(&args, &self.surroundings, &mut out),
            Line::Profile(args) => profile::run(&args, &mut out),
            Line::Explain(args) => explain::run(&args, &self.surroundings, &mut out),
        };
        let project = self.surroundings.cwd.display().to_string();
        (code.unwrap(), String::from_utf8(out).unwrap().replace(&project, "$P"))
    }
}

fn said(code: u8, text: &str) -> (u8, String) {
    (code, text.to_owned())
}

#[test]
fn a_new_policy_can_be_used_and_is_never_written_over_another() {
    let account = Account::new();
    assert_eq!(account.run("policy check").0, 1);
    assert_eq!(account.run("policy init"), said(0, "wrote $P/kvro-jail.toml\n"));
    assert_eq!(account.run("policy check"), said(0, "$P/kvro-jail.toml can be used\n"));
    assert_eq!(account.run("policy init"), said(1, "$P/kvro-jail.toml is there already\n"));
    assert_eq!(account.run("policy init --for user").0, 0);
    assert_eq!(account.run("policy show").0, 0);
}

#[test]
fn check_says_what_is_wrong_and_where() {
    let account = Account::new();
    account.project("[limits]\nmax_usd = \"5 EUR\"\n");
    assert_eq!(
        account.run("policy check"),
        said(
            1,
            "bad amount \"5 EUR\": an amount is digits with at most one point, like 5.00\n\
             \x20--> $P/kvro-jail.toml:3:11\n\
             \x20 |\n\
             3 | max_usd = \"5 EUR\"\n\
             \x20 |           ^^^^^^^\n"
        )
    );
    let (code, text) = account.run("policy check nowhere.toml");
    assert_eq!(code, 1);
    assert!(text.starts_with("cannot read the policy $P/nowhere.toml: "), "{text}");
}

#[test]
fn trust_says_what_it_allows_and_can_be_taken_back() {
    let account = Account::new();
    account.project("[net]\nallow = [\"x.example\"]\n");
    let (_, before) = account.run("policy check");
    assert_eq!(
        before,
        "$P/kvro-jail.toml can be used\n\
         $P/kvro-jail.toml:3: `x.example` in net.allow is not in force: \
         the directory is not trusted to widen the policy\n"
    );
    assert_eq!(
        account.run("policy trust ."),
        said(
            0,
            "trusted $P/kvro-jail.toml as it is now; an edit drops the trust\n  \
             allows now: net.allow `x.example` ($P/kvro-jail.toml:3)\n"
        )
    );
    assert_eq!(account.run("policy check"), said(0, "$P/kvro-jail.toml can be used\n"));
    assert_eq!(account.run("policy trust --forget"), said(0, "$P is no longer trusted\n"));
    assert_eq!(account.run("policy check").1, before);
    assert_eq!(account.run("policy trust ..").0, 1);
}

#[test]
fn explain_names_the_decision_and_the_rule_behind_it() {
    let account = Account::new();
    account.project("[net]\ndeny = [\"*.example.com\"]\n[limits]\nmax_turns = 1\n");
    for (question, answer) in [
        (
            "explain host api.anthropic.com",
            "api.anthropic.com:443 can be reached\n  \
             by `api.anthropic.com` in builtin:default:72\n  \
             Inference for Claude Code and its relatives.\n",
        ),
        (
            "explain host a.example.com:80",
            "a.example.com:80 is refused: the policy denies this server\n  \
             by `*.example.com` in $P/kvro-jail.toml:3\n",
        ),
        (
            "explain host x.example:22",
            "x.example:22 is refused: the policy does not list this server\n\n\
             hint: [net] allow = [\"x.example:22\"]\n",
        ),
        (
            "explain host x.example --policy builtin:test",
            "x.example:443 cannot be reached: there is no door\n  \
             by `mode = \"closed\"` in builtin:test:7\n",
        ),
        (
            "explain path a/../infra/main.tf",
            "$P/infra/main.tf can be read, but not written or made\n  \
             by `infra/**` in builtin:default:25\n  \
             What is in production changes by review, not by an agent.\n",
        ),
        ("explain path /etc/passwd", "/etc/passwd is the jail's own there, made for the run\n"),
        ("explain path /data", "/data is not there inside\n\nhint: show it with --read /data\n"),
        (
            "explain env LD_PRELOAD",
            "LD_PRELOAD does not come in: no rule names it\n\n\
             hint: let it in with --env LD_PRELOAD\n",
        ),
        (
            "explain env DISABLE_AUTOUPDATER -P claude",
            "DISABLE_AUTOUPDATER is set to \"1\"\n  \
             by `DISABLE_AUTOUPDATER` in profile:claude:41\n  \
             The program is read-only inside.\n",
        ),
    ] {
        assert_eq!(account.run(question), said(0, answer), "{question}");
    }
    let (_, json) = account.run("explain path .env --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["decision"], "hidden");
    assert_eq!(json["rule"], "**/.env");
}

#[test]
fn what_scripts_read_is_json() {
    let account = Account::new();
    let parse = |line| serde_json::from_str::<serde_json::Value>(&account.run(line).1).unwrap();
    let policy = parse("policy show --json");
    assert_eq!(policy["policy"]["net"]["allow"][0]["value"], "api.anthropic.com");
    assert_eq!(policy["policy"]["limits"]["on_limit"], "kill");
    assert_eq!(policy["layers"][0]["source"], "builtin:default");
    let names: Vec<String> = parse("profile list --json")
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| profile["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["base", "claude", "codex", "gemini", "generic", "node", "python", "rust"]);
    assert_eq!(parse("profile show claude --json")["keep"][0]["value"], "~/.claude");
}
