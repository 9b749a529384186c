//! The ground of these cases: a workspace with closed names at several depths, a twin of it that
//! no jail shows, and a place on the same filesystem where the host gets its changes ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::identity::Identity;
use crate::prisoner::CANARY;
use crate::raw;
use crate::talk::Talk;
use crate::world::{Side, World, give_all};

const FILES: [(&str, &str); 14] = [
    (".env", CANARY),
    ("plain.txt", "plain"),
    ("plain", "plain"),
    ("infra/main.tf", CANARY),
    ("infra/deep/more.tf", CANARY),
    (".git/HEAD", "ref: refs/heads/main"),
    (".git/config", "[core]"),
    (".git/hooks/pre-commit", "exit"),
    ("packages/api/.env", CANARY),
    ("packages/api/plain", "plain"),
    ("packages/api/plain.txt", "plain"),
    ("packages/web/index.js", "1"),
    ("open/plain.txt", "plain"),
    ("open/tree/leaf", "leaf"),
];

/// A world laid out for these cases.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) world: World,
    /// How much was got ready.
    prepared: AtomicU32,
}

impl Ground {
    pub(super) fn set(identity: Identity) -> anyhow::Result<Self> {
        let world = World::set(identity, &[])?;
        let ground = Self { world, prepared: AtomicU32::new(0) };
        fs::create_dir(ground.ready(""))?;
        identity.give(&ground.ready(""))?;
        for side in [Side::Inside, Side::Outside] {
            ground.lay(side)?;
        }
        Ok(ground)
    }

    /// Where the prisoner of this side works.
    pub(super) fn place(&self, side: Side) -> PathBuf {
        match side {
            Side::Inside => self.world.work(),
            Side::Outside => self.world.path("spare"),
        }
    }

    /// Makes the place of `side` as it is at first, in the directory that it was in.
    pub(super) fn lay(&self, side: Side) -> anyhow::Result<()> {
        let place = self.place(side);
        for entry in fs::read_dir(&place)? {
            let entry = entry?;
            let is_dir = entry.file_type()?.is_dir();
            let path = entry.path();
            if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }?;
        }
        for (name, text) in FILES {
            let path = place.join(name);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            fs::write(path, text)?;
        }
        fs::create_dir(place.join("infra/empty"))?;
        for name in [".env", "infra/main.tf", "infra", "packages/api"] {
            raw::set_attribute(&place.join(name))?;
        }
        give_all(self.world.identity, &place)
    }

    pub(super) fn talk(&self, side: Side) -> anyhow::Result<Talk<'_>> {
        match side {
            Side::Inside => Talk::inside(&self.world, &[]),
            Side::Outside => Talk::outside(&self.world),
        }
    }

    /// A place of the host's own.
    fn ready(&self, name: &str) -> PathBuf {
        self.world.path("ready").join(name)
    }

    /// Gets something ready outside of both places and moves it to `to` in the place of `side`.
    pub(super) fn put(
        &self,
        side: Side,
        to: &str,
        make: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let ready = self.prepare(make)?;
        fs::rename(ready, self.place(side).join(to)).with_context(|| format!("cannot put {to}"))
    }

    /// As [`Self::put`], for a file with this text.
    pub(super) fn put_text(&self, side: Side, to: &str, text: &str) -> anyhow::Result<()> {
        self.put(side, to, |path| fs::write(path, text))
    }

    /// Gets something ready and exchanges it with what is at `with`.
    pub(super) fn exchange(
        &self,
        side: Side,
        with: &str,
        make: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let ready = self.prepare(make)?;
        let with = self.place(side).join(with);
        renameat2(AT_FDCWD, &ready, AT_FDCWD, &with, RenameFlags::RENAME_EXCHANGE)?;
        // What was there is left alone: somebody may still be at work in it.
        Ok(())
    }

    fn prepare(&self, make: impl FnOnce(&Path) -> std::io::Result<()>) -> anyhow::Result<PathBuf> {
        let ready = self.ready(&self.prepared.fetch_add(1, Ordering::Relaxed).to_string());
        make(&ready)?;
        give_all(self.world.identity, &ready)?;
        Ok(ready)
    }
}

/// A jail must end as its prisoner did: not for want of a guard.
pub(super) fn ensure_ended_well(talk: Talk<'_>) -> anyhow::Result<()> {
    let code = talk.end()?;
    ensure!(code == Some(0), "it ended with {code:?}");
    Ok(())
}
