//! `kvro-jail profile list|show`.

use std::io::Write;

use serde_json::{Value, json};

use crate::policy::{Entry, HomePath, Keep, Profile, builtin_profile, profile_names, profile_text};

/// Arguments of `kvro-jail profile`.
#[derive(Debug, clap::Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    command: ProfileCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ProfileCommand {
    /// Every profile and the commands by which it is guessed
    List {
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// What a profile shows of the home, keeps, caches and sets, each with its reason
    Show {
        name: String,
        /// For programs
        #[arg(long)]
        json: bool,
    },
}

/// Answers on `out`.
pub fn run(args: &ProfileArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    match &args.command {
        ProfileCommand::List { json } => {
            let profiles = profile_names().into_iter().map(builtin_profile);
            let profiles = profiles.collect::<Result<Vec<_>, _>>()?;
            if *json {
                let all: Vec<Value> = profiles.iter().map(summary).collect();
                writeln!(out, "{}", json!(all))?;
            } else {
                for profile in &profiles {
                    writeln!(out, "{:<9} {}", profile.name, profile.about)?;
                }
            }
        }
        ProfileCommand::Show { name, json } => {
            let profile = builtin_profile(name)?;
            if *json {
                writeln!(out, "{:#}", whole(&profile))?;
            } else {
                // The text as it was written says all of it best, reasons included.
                write!(out, "{}", profile_text(name).unwrap_or_default())?;
            }
        }
    }
    Ok(0)
}

fn summary(profile: &Profile) -> Value {
    json!({ "name": profile.name, "about": profile.about, "commands": profile.commands })
}

fn whole(profile: &Profile) -> Value {
    let paths = |list: &[Entry<HomePath>]| entries(list, |path| json!(path.to_string()));
    json!({
        "name": profile.name,
        "about": profile.about,
        "commands": profile.commands,
        "servers": entries(&profile.servers, |server| json!(server.to_string())),
        "keep": profile.keep.iter().map(kept).collect::<Value>(),
        "read": paths(&profile.read),
        "read_if_clean": entries(&profile.read_if_clean, |file| json!(file.path.to_string())),
        "caches": paths(&profile.caches),
        "never": paths(&profile.never),
        "env": {
            "pass": entries(&profile.pass, |name| json!(name.to_string())),
            "set": entries(&profile.set, |variable| json!({
                "name": variable.name, "value": variable.value,
            })),
        },
    })
}

fn kept(entry: &Entry<Keep>) -> Value {
    json!({
        "value": entry.value.path.to_string(),
        "why": entry.why.as_deref(),
        "protect": entries(&entry.value.protect, |pattern| json!(pattern.to_string())),
        "watch": entries(&entry.value.watch, |key| json!(key.to_string())),
    })
}

fn entries<T>(list: &[Entry<T>], value: impl Fn(&T) -> Value) -> Value {
    list.iter()
        .map(|entry| json!({ "value": value(&entry.value), "why": entry.why.as_deref() }))
        .collect()
}
