//! A jail that cannot wait for its calls, because somebody else does already, is not run without.

use anyhow::ensure;

use crate::identity::{Identity, new_command};
use crate::prisoner::ARGUMENT;
use crate::record;
use crate::run::start;
use crate::tools;
use crate::world::World;

/// Exit code of a jail that could not be made.
const NOT_MADE: i32 = 125;

pub(super) fn taken(identity: Identity) -> anyhow::Result<()> {
    let world = World::set(identity, &[])?;
    let jail = world.jail(&[], &["thread"])?;
    let mut judged = new_command(tools::probe().as_ref());
    judged.args([ARGUMENT, "judged"]).arg(jail.get_program()).args(jail.get_args());
    judged.env_clear().current_dir(world.work());
    judged.envs(jail.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = start(&mut judged, world.root())?.end()?;
    ensure!(ran.code == Some(NOT_MADE), "{ran}");
    ensure!(ran.stdout.is_empty(), "something ran: {ran}");
    for word in ["cannot install the seccomp filter", "another sandbox around this one"] {
        ensure!(ran.stderr.contains(word), "not a word of {word:?}: {ran}");
    }
    let [run] = &record::runs(&world.state())?[..] else { anyhow::bail!("not one run: {ran}") };
    let entries = record::entries(run)?;
    let ended = record::data_of(&entries, "run.ended");
    ensure!(ended.len() == 1 && ended[0]["ended_by"] == "setup", "{ended:?}");
    Ok(())
}
