//! `kvro-jail explain host|path|env VALUE`: the decision, and the rule behind it.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use kvro_proxy::rules::Decision;
use kvro_proxy::{Server, ServerName};
use serde_json::json;

use super::Selection;
use crate::policy::{Entry, EnvAnswer, Loaded, NetMode, PathAnswer, Policy, lexical};
use crate::report::harmless;
use crate::surroundings::Surroundings;
use crate::workspace::{HomeView, SYSTEM_TREES, folds_case, is_git_dir, probe};

/// Arguments of `kvro-jail explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    #[command(subcommand)]
    question: Question,
    #[command(flatten)]
    selection: Selection,
    /// For programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Question {
    /// Whether a server can be reached: NAME or NAME:PORT (443 otherwise)
    Host { host: String },
    /// What holds for a path
    Path { path: PathBuf },
    /// Whether a variable comes in
    Env { name: String },
}

/// An answer before it is printed.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    about: String,
    /// A stable word.
    decision: &'static str,
    /// What it means, as the end of a sentence that begins with `about`.
    meaning: String,
    /// The rule, as it was typed.
    rule: Option<String>,
    origin: Option<String>,
    why: Option<String>,
    hint: Option<String>,
}

/// Answers on `out`.
pub fn run(
    args: &ExplainArgs,
    surroundings: &Surroundings,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (workspace, loaded) = args.selection.load(surroundings)?;
    let answer = match &args.question {
        Question::Host { host } => about_host(&loaded, host)?,
        Question::Path { path } => {
            let command = args.selection.command.as_deref().map(OsStr::new);
            let view = probe(surroundings, &loaded.profile, &workspace, &[], command)
                .with_repository(&workspace, &loaded.policy.files);
            // By name only: a path that is not there yet can be asked about.
            about_path(&loaded, &view, &workspace, &lexical(&surroundings.cwd.join(path)))
        }
        Question::Env { name } => about_env(&loaded, name),
    };
    if args.json {
        writeln!(out, "{}", answer.to_json())?;
    } else {
        answer.print(out)?;
    }
    Ok(0)
}

fn about_host(loaded: &Loaded, host: &str) -> anyhow::Result<Answer> {
    let server = host
        .parse::<Server>()
        .or_else(|_no_port| host.parse::<ServerName>().map(|name| Server::new(name, 443)));
    let server = server.with_context(|| format!("{host:?} is no server"))?;
    let net = &loaded.policy.net;
    let (decision, entry) = net.judge(&server);
    let answer = match decision {
        Decision::Allow(_) => Answer::new(&server, "allowed", "can be reached"),
        Decision::Deny(_) if net.mode == NetMode::Closed => {
            let origin = loaded.policy.origins.get("net.mode").map(ToString::to_string);
            let answer = Answer::new(&server, "closed", "cannot be reached: there is no door");
            return Ok(Answer { rule: Some("mode = \"closed\"".to_owned()), origin, ..answer });
        }
        Decision::Deny(reason) => Answer {
            hint: reason.remedy(&server),
            ..Answer::new(&server, reason.code(), &format!("is refused: {}", reason.sentence()))
        },
    };
    Ok(answer.by(entry))
}

fn about_path(loaded: &Loaded, view: &HomeView, workspace: &Path, path: &Path) -> Answer {
    let about = path.display();
    // What the policy says of git directories is said of those on the way, and of the one that the
    // workspace itself has or will have.
    let inside = path.strip_prefix(workspace).unwrap_or(Path::new(""));
    let own = [PathBuf::from(".git")].into_iter();
    let on_the_way = inside.ancestors().filter(|dir| is_git_dir(&workspace.join(dir)));
    let git_dirs = own.chain(on_the_way.map(Path::to_owned)).collect();
    let files = loaded.policy.files.in_repositories(&git_dirs).folded_if(folds_case(workspace));
    let policy = Policy { files, ..loaded.policy.clone() };
    match policy.explain_path(workspace, path) {
        PathAnswer::Hidden(rule) => {
            Answer::new(about, "hidden", "cannot be read, written or made").by(Some(rule))
        }
        PathAnswer::Protected(rule) => Answer::protected(about, rule),
        PathAnswer::Writable(rule) => {
            Answer::new(about, "writable", "can be read and written").by(Some(&shown(rule)))
        }
        PathAnswer::Readable(rule) => {
            Answer::new(about, "readable", "can be read").by(Some(&shown(rule)))
        }
        PathAnswer::InWorkspace => {
            Answer::new(about, "readable", "can be read, as all of the workspace")
        }
        PathAnswer::NotNamed => beside_policy(view, path),
    }
}

/// Trees that every jail has for itself, whatever the host has there.
const ITS_OWN: [&str; 7] = ["/etc", "/proc", "/sys", "/dev", "/run", "/tmp", "/var"];

/// What the jail shows without a line of the policy.
fn beside_policy(view: &HomeView, path: &Path) -> Answer {
    let about = path.display();
    let among = |list: &[crate::workspace::Shown]| list.iter().any(|s| path.starts_with(&s.at));
    if among(&view.caches) {
        Answer::new(about, "cache", "can be read; what is written stays in a private layer")
    } else if let Some(rule) = view.settings.iter().find_map(|settings| {
        let below = path.strip_prefix(&settings.dir.at).ok()?;
        settings.protect.covers(below)
    }) {
        Answer::protected(about, rule)
    } else if among(&view.keep) {
        Answer::new(about, "writable", "can be read and written: the agent's own state")
    } else if among(&view.read) || SYSTEM_TREES.iter().any(|tree| path.starts_with(tree)) {
        Answer::new(about, "readable", "can be read, where the jail shows programs and settings")
    } else if ITS_OWN.iter().any(|tree| path.starts_with(tree)) {
        Answer::new(about, "own", "is the jail's own there, made for the run")
    } else {
        let hint = format!("show it with --read {about}");
        Answer { hint: Some(hint), ..Answer::new(about, "invisible", "is not there inside") }
    }
}

fn about_env(loaded: &Loaded, name: &str) -> Answer {
    match loaded.policy.explain_env(name) {
        EnvAnswer::Set(entry) => {
            let meaning = format!("is set to {:?}", entry.value.value);
            let entry = Entry {
                value: entry.value.name.clone(),
                why: entry.why.clone(),
                origin: entry.origin.clone(),
            };
            Answer::new(name, "set", &meaning).by(Some(&entry))
        }
        EnvAnswer::Passes(entry) => Answer::new(name, "passes", "comes in").by(Some(entry)),
        EnvAnswer::Dropped => Answer {
            hint: Some(format!("let it in with --env {name}")),
            ..Answer::new(name, "dropped", "does not come in: no rule names it")
        },
    }
}

impl Answer {
    fn new(about: impl Display, decision: &'static str, meaning: &str) -> Self {
        Self {
            about: about.to_string(),
            decision,
            meaning: meaning.to_owned(),
            rule: None,
            origin: None,
            why: None,
            hint: None,
        }
    }

    fn protected<T: Display>(about: impl Display, rule: &Entry<T>) -> Self {
        Self::new(about, "protected", "can be read, but not written or made").by(Some(rule))
    }

    fn by<T: Display>(self, entry: Option<&Entry<T>>) -> Self {
        let Some(entry) = entry else { return self };
        Self {
            rule: Some(entry.value.to_string()),
            origin: Some(entry.origin.to_string()),
            why: entry.why.as_deref().map(str::to_owned),
            ..self
        }
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "about": self.about,
            "decision": self.decision,
            "rule": self.rule,
            "origin": self.origin,
            "why": self.why,
            "hint": self.hint,
        })
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{} {}", harmless(&self.about), self.meaning)?;
        if let (Some(rule), Some(origin)) = (&self.rule, &self.origin) {
            writeln!(out, "  by `{rule}` in {origin}")?;
        }
        if let Some(why) = &self.why {
            writeln!(out, "  {why}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(out, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

fn shown(entry: &Entry<PathBuf>) -> Entry<String> {
    Entry {
        value: entry.value.display().to_string(),
        why: entry.why.clone(),
        origin: entry.origin.clone(),
    }
}
