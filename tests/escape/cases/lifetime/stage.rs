//! Where lives are led: a world whose prisoners can be counted, and what is on record of them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::census;
use crate::identity::Identity;
use crate::prisoner::READY;
use crate::record;
use crate::run::{Running, report, start, wait_at_most, wait_until};
use crate::tools;
use crate::world::World;

/// How soon everything must be dead that nobody waits for: with room for a busy machine.
const SOON: Duration = Duration::from_secs(3);

/// A world whose prisoners can be counted.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) mark: String,
}

impl Stage {
    pub(super) fn set(identity: Identity) -> anyhow::Result<Self> {
        let mut world = World::set(identity, &[vec!["closed/.env".to_owned()]])?;
        world.take_own_program()?;
        let mark = format!("kvro-escape-mark-{}", world.root().display());
        Ok(Self { world, mark })
    }

    pub(super) fn command(&self, options: &[&str], life: &[&str]) -> anyhow::Result<Command> {
        let variable = format!("KVRO_ESCAPE_MARK={}", self.mark);
        let report = self.world.path("report.json").display().to_string();
        let own = ["--env", &variable, "--report", &report];
        self.world.jail(&[&own[..], options].concat(), life)
    }

    /// Starts a life and waits until it is what it shall be, with at least `least` alive.
    pub(super) fn start_until_ready(
        &self,
        options: &[&str],
        life: &[&str],
        least: usize,
    ) -> anyhow::Result<Running<'_>> {
        let running = start(&mut self.command(options, life)?, self.world.root())?;
        wait_until(|| Ok(self.file(READY).exists())).context("the life was never ready")?;
        wait_until(|| Ok(census::marked(&self.mark).len() >= least)).context("too few alive")?;
        Ok(running)
    }

    /// A file of the workspace.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.world.work().join(name)
    }

    pub(super) fn nobody_is_alive(&self) -> anyhow::Result<()> {
        let alive = self.world.alive(&self.mark)?;
        ensure!(alive.is_empty(), "still alive: {alive:?}");
        Ok(())
    }

    pub(super) fn nobody_is_alive_soon(&self) -> anyhow::Result<()> {
        wait_at_most(SOON, &mut || Ok(self.world.alive(&self.mark)?.is_empty()))
            .context("somebody is alive")?;
        // Who forks may have been between two lives during one look.
        self.nobody_is_alive()
    }

    pub(super) fn report(&self) -> anyhow::Result<Value> {
        report(&self.world.path("report.json"))
    }

    /// The ledger of the last run.
    pub(super) fn entries(&self) -> anyhow::Result<Vec<Value>> {
        let runs = record::runs(&self.world.state())?;
        record::entries(runs.last().context("no run is on record")?)
    }

    /// One end, for this cause, and a sound ledger.
    pub(super) fn ended_once(&self, ended_by: &str) -> anyhow::Result<()> {
        let entries = self.entries()?;
        let ends = record::data_of(&entries, "run.ended");
        ensure!(ends.len() == 1, "{} ends: {ends:?}", ends.len());
        ensure!(ends[0]["ended_by"] == ended_by, "{:?}", ends[0]);
        ensure!(self.report()?["ended_by"] == ended_by, "{}", self.report()?);
        record::verify(self.world.identity, &self.world.state())
    }

    /// `kvro-jail kill` on the last run.
    pub(super) fn kill_command(&self) -> anyhow::Result<Command> {
        let runs = record::runs(&self.world.state())?;
        let run = runs.last().and_then(|run| run.file_name()).context("no run to kill")?;
        let mut command = self.world.identity.command(tools::program())?;
        command.env("HOME", self.world.path("home")).env("XDG_STATE_HOME", self.world.state());
        command.arg("kill").arg(run).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}
