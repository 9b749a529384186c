//! Known holes: what a root caller's agent is where files cannot be idmapped.
//!
//! Each asserts what happens today, and so fails on the day that the hole is closed.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::Case;
use crate::identity::Identity;
use crate::needs::Need;
use crate::record;
use crate::row::Defence;
use crate::run::start;
use crate::world::{Side, World};

pub(super) const CASES: &[Case] = &[Case {
    name: "without_id_maps_roots_agent_is_held_by_its_mounts_alone",
    defence: Defence::Identity,
    needs: &[Need::AsRoot],
    run: without_id_maps,
}];

/// A filesystem that cannot be idmapped, over a world's workspace.
#[derive(Debug)]
struct Unmappable(PathBuf);

impl Unmappable {
    fn mount(world: &World) -> anyhow::Result<Self> {
        let (place, kind) = (world.work(), Some("ramfs"));
        mount(kind, &place, kind, MsFlags::empty(), None::<&str>).context("no ramfs")?;
        Ok(Self(place))
    }
}

impl Drop for Unmappable {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).ok();
    }
}

/// To the kernel that agent is root, and the record says so.
fn without_id_maps(identity: Identity) -> anyhow::Result<()> {
    let world = World::set(identity, &[])?;
    let _unmappable = Unmappable::mount(&world)?;
    let answer = |probe: &[&str]| {
        let words: Vec<String> =
            probe.iter().map(|word| world.resolve(word, Side::Inside)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = start(&mut world.jail(&[], &words)?, world.root())?.end()?;
        ensure!(ran.code == Some(0), "{ran}");
        Ok(ran.stdout.trim_end().to_owned())
    };
    // What the mounts hold.
    ensure!(answer(&["open-to-write", "/proc/sys/kernel/core_pattern"])? == "EROFS");
    ensure!(answer(&["read", "/etc/shadow"])? == "ENOENT");
    ensure!(answer(&["status", "CapEff"])? == "0000000000000000");
    // What they do not: a file of root's in a tree that the jail shows.
    ensure!(answer(&["read", "{for-root}"])? == "canary", "closed by now?");

    let runs = record::runs(&world.state())?;
    let entries = record::entries(runs.last().context("no run is on record")?)?;
    let applied = record::data_of(&entries, "isolation.applied");
    let users = applied.first().context("no isolation is on record")?["layers"][0].clone();
    ensure!(users["detail"] == "uid 1000, to the kernel uid 0", "{users}");
    Ok(())
}
