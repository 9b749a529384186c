//! The flags by which a subcommand says which policy it is about.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Context;

use crate::policy::{self, Loaded, Overlay, PolicyChoice};
use crate::surroundings::Surroundings;
use crate::workspace::real_path;

/// Which run a question is about.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Selection {
    /// The agent's profile; guessed from the command otherwise
    #[arg(short = 'P', long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// A policy file, or builtin:NAME, in place of the ones that would be found
    #[arg(long, global = true, value_name = "FILE")]
    pub policy: Option<PolicyChoice>,
    /// Where the agent would work
    #[arg(short = 'C', long, global = true, value_name = "DIR", default_value = ".")]
    pub workspace: PathBuf,
    /// The command that would be run, for which a profile is guessed
    #[arg(long, global = true, value_name = "CMD")]
    pub command: Option<OsString>,
}

impl Selection {
    /// Loads what a run would load; answers the workspace as well.
    ///
    /// A place that no agent may work in is no mistake here: a question runs nothing.
    pub fn load(&self, surroundings: &Surroundings) -> anyhow::Result<(PathBuf, Loaded)> {
        let asked = surroundings.cwd.join(&self.workspace);
        let workspace = real_path(&asked)
            .with_context(|| format!("cannot open the workspace {}", asked.display()))?;
        let overlay = Overlay { policy: self.policy.clone(), ..Overlay::default() };
        let command = self.command.as_deref().map(OsStr::new);
        let profile = self.profile.as_deref();
        let loaded = policy::load(surroundings, &workspace, &overlay, profile, command)?;
        Ok((workspace, loaded))
    }
}
