//! The real clients, from npm at pinned versions, through the jail and against the stub.
//!
//! What they say must come through, what they spend must be on record to the token, and a ceiling
//! must end them however they loop. Each case runs as the caller and, where that is root, as an
//! ordinary user too. Their own behaviour is not under test: they stand for what nobody here wrote.

#[path = "../support/census.rs"]
mod census;
#[path = "../support/copied.rs"]
mod copied;
#[path = "../support/identity.rs"]
mod identity;
#[path = "../support/stub/mod.rs"]
mod stub;

mod installed;
mod scene;

use std::process::ExitCode;

use anyhow::ensure;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::json;

use identity::Identity;
use installed::Clients;
use scene::Scene;

/// Exit code of a run that reached a ceiling.
const LIMIT: i32 = 122;

const CLAUDE: [&str; 3] = ["claude", "-p", "hello"];
const CLAUDE_LOOPING: [&str; 5] = ["claude", "-p", "hello", "--allowedTools", "Bash"];
const CODEX: [&str; 4] = ["codex", "exec", "--skip-git-repo-check", "hello"];
const GEMINI: [&str; 4] = ["gemini", "--skip-trust", "-p", "hello"];
const GEMINI_LOOPING: [&str; 5] = ["gemini", "--skip-trust", "--yolo", "-p", "hello"];
/// The jail is the sandbox; the client's own would need what the jail does not give.
const CODEX_LOOPING: [&str; 5] = [
    "codex",
    "exec",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "hello",
];
const EIGHT_CLAUDES: [&str; 3] = [
    "sh",
    "-c",
    "for n in 1 2 3 4 5 6 7 8; do claude -p \"hello $n\" --allowedTools Bash & done; wait",
];

/// What comes of the answers to the calls that were accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Whole,
    /// The refusal of one client's call ends another while it is answered.
    Cut,
}

type Case = fn(Scene) -> anyhow::Result<()>;

fn main() -> ExitCode {
    let cases: [(&str, Case); 7] = [
        ("claude_answers_and_its_tokens_are_on_record", |scene| answers(scene, &CLAUDE)),
        ("codex_answers_and_its_tokens_are_on_record", |scene| answers(scene, &CODEX)),
        ("gemini_answers_and_its_tokens_are_on_record", |scene| answers(scene, &GEMINI)),
        ("a_looping_gemini_gets_three_turns_and_no_more", |scene| {
            ends(scene, &GEMINI_LOOPING, Answers::Whole)
        }),
        ("a_looping_claude_gets_three_turns_and_no_more", |scene| {
            ends(scene, &CLAUDE_LOOPING, Answers::Whole)
        }),
        ("a_looping_codex_gets_three_turns_and_no_more", |scene| {
            ends(scene, &CODEX_LOOPING, Answers::Whole)
        }),
        ("eight_looping_claudes_share_three_turns", |scene| {
            ends(scene, &EIGHT_CLAUDES, Answers::Cut)
        }),
    ];
    let trials = cases.into_iter().flat_map(|(name, case)| {
        Identity::available().iter().map(move |&identity| {
            let suffix = identity.to_string().replace(' ', "_");
            Trial::ignorable_test(format!("{name}_{suffix}"), move || run(identity, case))
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn run(identity: Identity, case: Case) -> Result<Completion, Failed> {
    let clients = match Clients::find(identity) {
        Ok(clients) => clients,
        Err(missing) => return Ok(Completion::ignored_with(format!("{missing:#}"))),
    };
    let scene = Scene::set(identity, clients).map_err(|error| format!("{error:#}"))?;
    case(scene).map_err(|error| format!("{error:#}"))?;
    Ok(Completion::Completed)
}

fn answers(scene: Scene, client: &[&str]) -> anyhow::Result<()> {
    let stub = scene.provider("ok")?;
    let ran = scene.jail(&stub, &[], client)?;
    let sent = stub.totals();

    ensure!(ran.code == Some(0), "{ran}");
    ensure!(ran.stdout.trim() == "pong", "{ran}");
    ensure!(sent.tokens.output > 0, "the stub sent nothing: {ran}");
    ensure!(ran.report["tokens"] == json!(sent.tokens), "the stub sent {sent:?}; {ran}");
    ensure!(ran.report["turns"] == json!(sent.generations), "the stub sent {sent:?}; {ran}");
    ensure!(ran.report["ended_by"] == "exit", "{ran}");
    Ok(())
}

fn ends(scene: Scene, client: &[&str], answers: Answers) -> anyhow::Result<()> {
    let stub = scene.provider("tool-loop")?;
    let ran = scene.jail(&stub, &["--max-turns", "3"], client)?;
    let sent = stub.totals();

    ensure!(ran.code == Some(LIMIT), "{ran}");
    ensure!(sent.generations == 3, "the stub accepted {}; {ran}", sent.generations);
    ensure!(sent.rejected == 0, "the stub was asked {} times more; {ran}", sent.rejected);
    ensure!(ran.report["turns"] == json!(3), "{ran}");
    let is_whole = ran.report["tokens"] == json!(sent.tokens);
    // Of a call that was cut nobody knows the numbers: it counts with all that it may have cost.
    let is_cut = answers == Answers::Cut && ran.report["cost_usd"].as_str() > Some("0");
    ensure!(is_whole || is_cut, "the stub sent {sent:?}; {ran}");
    ensure!(ran.report["ended_by"] == "limit", "{ran}");
    // The control comes first: a census that never counted anybody proves nothing.
    ensure!(ran.seen_alive > 0, "nobody was ever seen alive; {ran}");
    ensure!(ran.survivors.is_empty(), "still alive: {:?}; {ran}", ran.survivors);
    Ok(())
}
