//! Where an agent may not work at all.

use std::path::Path;

use anyhow::ensure;

use super::Case;
use crate::identity::Identity;
use crate::record;
use crate::row::Defence;
use crate::run::start;
use crate::world::World;

/// Exit code of a jail that could not be set up as asked.
const NOT_SET_UP: i32 = 125;

pub(super) const CASES: &[Case] = &[
    case("the_root_is_no_workspace", |identity| refused(identity, |_| "/".into())),
    case("the_home_is_no_workspace", |identity| refused(identity, |world| world.path("home"))),
    case("what_holds_the_home_is_no_workspace", |identity| {
        refused(identity, |world| world.root().to_owned())
    }),
    case("tmp_is_no_workspace", |identity| refused(identity, |_| "/tmp".into())),
    case("a_home_of_keys_is_no_workspace", |identity| {
        refused(identity, |world| world.path("home/.ssh"))
    }),
    case("the_record_is_no_workspace", |identity| refused(identity, World::state)),
    case("the_kernels_files_are_no_workspace", |identity| refused(identity, |_| "/proc".into())),
];

const fn case(name: &'static str, run: fn(Identity) -> anyhow::Result<()>) -> Case {
    Case { name, defence: Defence::Place, needs: &[], run }
}

/// Nothing is started in `place`, and the same command runs in the workspace.
fn refused(identity: Identity, place: fn(&World) -> std::path::PathBuf) -> anyhow::Result<()> {
    let world = World::set(identity, &[])?;
    let run_in = |workspace: &Path| {
        let mut command = world.jail(&[], &["thread"])?;
        command.current_dir(workspace);
        start(&mut command, world.root())?.end()
    };
    let place = place(&world);
    let ran = run_in(&place)?;
    ensure!(ran.code == Some(NOT_SET_UP), "{ran}");
    ensure!(ran.stdout.is_empty(), "something ran: {ran}");
    ensure!(ran.stderr.contains(&format!("workspace {}", place.display())), "{ran}");
    ensure!(ran.stderr.contains("hint:"), "no way out is named: {ran}");
    let runs = record::runs(&world.state())?;
    ensure!(runs.is_empty(), "a run was opened: {runs:?}");

    let control = run_in(&world.work())?;
    ensure!(control.code == Some(0) && control.stdout == "ok\n", "the control: {control}");
    Ok(())
}
