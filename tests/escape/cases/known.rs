//! Known holes: what a root caller's agent is where files cannot be idmapped, and what a directory
//! brings along to names that patterns with wildcards close.
//!
//! Each asserts what happens today, and so fails on the day that the hole is closed. What is made in
//! the run at a closed name is gone when it is over.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::Case;
use crate::identity::Identity;
use crate::needs::Need;
use crate::record;
use crate::row::Defence;
use crate::run::start;
use crate::talk::Talk;
use crate::world::{Side, World};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "without_id_maps_roots_agent_is_held_by_its_mounts_alone",
        defence: Defence::Identity,
        needs: &[Need::AsRoot],
        run: without_id_maps,
    },
    Case {
        name: "a_directory_brings_along_what_a_wildcard_closes",
        defence: Defence::Guard,
        needs: &[],
        run: brought_along,
    },
];

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

/// The name is refused by itself, and not as part of a directory that is moved to where it is
/// closed: only directories that a pattern spells out are known to lead to closed names.
fn brought_along(identity: Identity) -> anyhow::Result<()> {
    let world = World::set(identity, &[])?;
    let mut talk = Talk::inside(&world, &["--protect", "mods/*/hook"])?;
    for made in ["mods", "mods/one", "load"] {
        ensure!(talk.ask(&["mkdir", made])? == "ok");
    }
    ensure!(talk.ask(&["create", "load/hook"])? == "ok");
    ensure!(talk.ask(&["create", "mods/one/hook"])? == "EACCES");
    ensure!(talk.ask(&["rename", "load", "mods/two"])? == "ok", "closed by now?");
    ensure!(talk.end()? == Some(0));
    // It is found when the run is over.
    ensure!(!world.work().join("mods/two/hook").exists(), "it is left on the host");
    Ok(())
}
