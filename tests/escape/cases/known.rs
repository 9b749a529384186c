//! Known holes: what masks alone do not hold.
//!
//! Each asserts what happens today, and so fails on the day that the hole is closed.

use anyhow::ensure;

use super::Case;
use crate::identity::Identity;
use crate::row::Defence;
use crate::run::start;
use crate::world::World;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "the_directory_of_a_hidden_file_can_be_moved_and_made_again",
        defence: Defence::HiddenMask,
        needs: &[],
        run: |identity| succeeds(identity, &["rename-and-rebuild", "closed/deep", ".env"]),
    },
    Case {
        name: "a_hidden_name_can_be_made_where_it_was_not",
        defence: Defence::HiddenMask,
        needs: &[],
        run: |identity| succeeds(identity, &["create", "open/.env"]),
    },
    Case {
        name: "a_protected_name_can_be_made_where_it_was_not",
        defence: Defence::ProtectedMask,
        needs: &[],
        run: |identity| succeeds(identity, &["create", "open/kvro-jail.toml"]),
    },
];

fn succeeds(identity: Identity, probe: &[&str]) -> anyhow::Result<()> {
    let files = ["closed/deep/.env", "open/plain.txt"].map(|file| vec![file.to_owned()]);
    let world = World::set(identity, &files)?;
    let ran = start(&mut world.jail(&[], probe)?, world.root())?.end()?;
    ensure!(ran.code == Some(0) && ran.stdout == "ok\n", "closed by now? {ran}");
    Ok(())
}
