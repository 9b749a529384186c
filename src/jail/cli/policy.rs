//! `kvro-jail policy init|show|check|trust`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::Selection;
use crate::policy::{
    PROJECT_FILE, PolicyChoice, TrustStore, asked_beyond, asked_in_vain, check, find_project,
};
use crate::surroundings::Surroundings;
use crate::workspace::real_path;

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

/// What `policy init` writes: every line is an example, only the first two are in force.
const STARTER: &str = include_str!("starter.toml");

/// Arguments of `kvro-jail policy`.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Write a kvro-jail.toml to start from
    Init {
        /// Whose policy: this directory's, or your own, which holds for every project
        #[arg(long, value_enum, default_value_t = Whose::Project)]
        r#for: Whose,
    },
    /// Print the policy that a run would be under, with the line behind each entry
    Show {
        #[command(flatten)]
        selection: Selection,
        /// For programs
        #[arg(long)]
        json: bool,
    },
    /// Read a policy without running anything; exit 1 when it cannot be used
    Check {
        /// A file or builtin:NAME; the project's own otherwise
        file: Option<PolicyChoice>,
    },
    /// Let a project's kvro-jail.toml do more than tighten, as long as it is not edited
    Trust {
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Take the trust back
        #[arg(long)]
        forget: bool,
    },
}

/// Whose policy a new file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Whose {
    Project,
    User,
}

/// Does what is asked and answers on `out`.
pub fn run(
    args: &PolicyArgs,
    surroundings: &Surroundings,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    match &args.command {
        PolicyCommand::Init { r#for: whose } => init(surroundings, *whose, out),
        PolicyCommand::Show { selection, json: false } => show(surroundings, selection, out),
        PolicyCommand::Show { selection, json: true } => show_json(surroundings, selection, out),
        PolicyCommand::Check { file } => check_file(surroundings, file.as_ref(), out),
        PolicyCommand::Trust { dir, forget } => {
            let directory = real_path(&surroundings.cwd.join(dir))
                .with_context(|| format!("cannot open {}", dir.display()))?;
            if *forget {
                forget_trust(surroundings, &directory, out)
            } else {
                trust(surroundings, &directory, out)
            }
        }
    }
}

fn init(surroundings: &Surroundings, whose: Whose, out: &mut dyn Write) -> anyhow::Result<u8> {
    let path = match whose {
        Whose::Project => surroundings.cwd.join(PROJECT_FILE),
        Whose::User => surroundings.config_dir().join("policy.toml"),
    };
    if let (Whose::User, Some(directory)) = (whose, path.parent()) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    // Never over a policy that is there: it may be the one thing that holds an agent back.
    match fs::File::options().write(true).create_new(true).open(&path) {
        Ok(mut file) => file.write_all(STARTER.as_bytes())?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            writeln!(out, "{} is there already", path.display())?;
            return Ok(1);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
    }
    writeln!(out, "wrote {}", path.display())?;
    Ok(0)
}

fn show(
    surroundings: &Surroundings,
    selection: &Selection,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (workspace, loaded) = selection.load(surroundings)?;
    writeln!(out, "# in force for {}", workspace.display())?;
    writeln!(out, "# with the profile {}", loaded.profile.agent.name)?;
    for warning in &loaded.warnings {
        writeln!(out, "# {warning}")?;
    }
    write!(out, "{}", loaded.policy.to_toml())?;
    Ok(0)
}

fn show_json(
    surroundings: &Surroundings,
    selection: &Selection,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (workspace, loaded) = selection.load(surroundings)?;
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    let answer = json!({
        "workspace": workspace.display().to_string(),
        "profile": loaded.profile.agent.name,
        "layers": loaded.layers,
        "warnings": warnings,
        "policy": loaded.policy.to_json(),
    });
    writeln!(out, "{answer:#}")?;
    Ok(0)
}

fn check_file(
    surroundings: &Surroundings,
    file: Option<&PolicyChoice>,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let (name, checked) = match file {
        Some(choice) => (choice.to_string(), check(surroundings, &surroundings.cwd, choice)),
        None => match find_project(&surroundings.cwd)? {
            Some((path, _)) => {
                let choice = PolicyChoice::File(path);
                (choice.to_string(), check(surroundings, &surroundings.cwd, &choice))
            }
            None => {
                writeln!(out, "there is no {PROJECT_FILE} here or above")?;
                return Ok(1);
            }
        },
    };
    if let Err(error) = checked {
        writeln!(out, "{:#}", anyhow::Error::from(error))?;
        return Ok(1);
    }
    writeln!(out, "{name} can be used")?;
    if file.is_none() {
        for warning in asked_in_vain(surroundings, &surroundings.cwd)? {
            writeln!(out, "{warning}")?;
        }
    }
    Ok(0)
}

fn trust(surroundings: &Surroundings, directory: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    let found = find_project(directory)?;
    let Some((path, body)) = found.filter(|(path, _)| path.parent() == Some(directory)) else {
        writeln!(out, "there is no {PROJECT_FILE} in {}", directory.display())?;
        return Ok(1);
    };
    let beyond = asked_beyond(surroundings, directory)?;
    TrustStore::read(&surroundings.state_dir())?.trust(directory, body.as_bytes())?;
    writeln!(out, "trusted {} as it is now; an edit drops the trust", path.display())?;
    for warning in &beyond {
        writeln!(out, "  allows now: {}", warning.asked())?;
    }
    Ok(0)
}

fn forget_trust(
    surroundings: &Surroundings,
    directory: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let was = TrustStore::read(&surroundings.state_dir())?.forget(directory)?;
    let word = if was { "is no longer trusted" } else { "was not trusted" };
    writeln!(out, "{} {word}", directory.display())?;
    Ok(0)
}
