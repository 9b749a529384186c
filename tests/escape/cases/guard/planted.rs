//! Protected names where nothing is yet: what would be run by others later cannot be planted, by
//! no detour, and what lies beside it can be made.

use std::fs;

use anyhow::ensure;

use super::ground::Ground;
use super::later::play;
use crate::identity::Identity;
use crate::world::{Side, give_all};

/// Named by the case, so that it does not depend on what the built-in policy lists.
const OPTIONS: [&str; 12] = [
    "--protect",
    ".editor/tasks.json",
    "--protect",
    ".hooks/**",
    "--protect",
    ".ci/flows/**",
    "--protect",
    "mods/*/hook",
    "--protect",
    "deep/**/bin/tool",
    "--protect",
    "**/plug/main.js",
];

#[rustfmt::skip]
pub(super) fn planted(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    play(&ground, &OPTIONS, &[
        // A directory that may be there and a file in it that may not.
        (&["symlink", "open", ".editor"], "EACCES"),
        (&["unlink", ".editor"], "ENOENT"),
        (&["symlink", "open", "way"], "ok"),
        (&["rename", "way", ".editor"], "EACCES"),
        (&["unlink", ".editor"], "ENOENT"),
        (&["link", "way", ".editor"], "EACCES"),
        (&["create", ".editor"], "ok"),
        (&["exchange", ".editor", "open"], "EACCES"),
        (&["exchange", ".editor", "way"], "EACCES"),
        (&["rename", ".editor", "filed"], "ok"),
        (&["mkdir", ".editor"], "ok"),
        (&["create", ".editor/tasks.json"], "EACCES"),
        (&["create", ".editor/words.json"], "ok"),
        (&["rename", ".editor/words.json", ".editor/tasks.json"], "EACCES"),
        (&["create", ".editor/more.json"], "ok"),
        (&["link", ".editor/more.json", ".editor/tasks.json"], "EACCES"),
        (&["symlink", "more.json", ".editor/tasks.json"], "EACCES"),
        (&["mkdir", ".editor/tasks.json"], "EACCES"),
        (&["create-below", ".editor", "tasks.json"], "EACCES"),
        (&["mkdir", "box"], "ok"),
        (&["create", "box/tasks.json"], "ok"),
        (&["exchange", "box", ".editor"], "EACCES"),
        (&["exchange", ".editor", "box"], "EACCES"),
        (&["rename", ".editor", "gone"], "EACCES"),
        (&["create", "box/tasks.json"], "EEXIST"),
        // A directory that may not be there at all.
        (&["mkdir", ".hooks"], "EACCES"),
        (&["rename", "box", ".hooks"], "EACCES"),
        (&["symlink", "box", ".hooks"], "EACCES"),
        (&["mkdir", ".ci"], "ok"),
        (&["mkdir", ".ci/flows"], "EACCES"),
        (&["create", ".ci/other"], "ok"),
        (&["mkdir", "flows"], "ok"),
        (&["rename", "flows", ".ci/flows"], "EACCES"),
        (&["symlink", "../box", ".ci/flows"], "EACCES"),
        (&["mkdir", "mods"], "ok"),
        (&["mkdir", "mods/one"], "ok"),
        (&["create", "mods/one/hook"], "EACCES"),
        // What a pattern describes with wildcards, brought along in a directory.
        (&["mkdir", "load"], "ok"),
        (&["create", "load/hook"], "ok"),
        (&["rename", "load", "mods/two"], "EACCES"),
        (&["symlink", "../load", "mods/two"], "EACCES"),
        (&["exchange", "load", "mods/one"], "EACCES"),
        (&["mkdir", "mods/two"], "ok"),
        (&["rename", "load/hook", "mods/two/hook"], "EACCES"),
        (&["create", "mods/two/other"], "ok"),
        (&["mkdir", "deep"], "ok"),
        (&["mkdir", "deep/down"], "ok"),
        (&["mkdir", "case"], "ok"),
        (&["mkdir", "case/bin"], "ok"),
        (&["create", "case/bin/tool"], "ok"),
        (&["rename", "case", "deep/down/case"], "EACCES"),
        (&["rename", "case/bin", "deep/down/bin"], "EACCES"),
        (&["exchange", "deep/down", "case"], "EACCES"),
        (&["mkdir", "chest"], "ok"),
        (&["mkdir", "chest/bin"], "ok"),
        (&["create", "chest/bin/other"], "ok"),
        (&["mkdir", "deep/up"], "ok"),
        (&["rename", "chest", "deep/up/chest"], "ok"),
        (&["rename", "deep/up/chest/bin/other", "deep/up/chest/bin/tool"], "EACCES"),
        (&["mkdir", "plug-1"], "ok"),
        (&["create", "plug-1/main.js"], "ok"),
        (&["rename", "plug-1", "plug"], "EACCES"),
        (&["mkdir", "plug-3"], "ok"),
        (&["create", "plug-3/main.js"], "ok"),
        (&["rename", "plug-3", "plug-2"], "ok"),
    ])?;
    let place = ground.place(Side::Inside);
    for name in [".editor/tasks.json", ".hooks", ".ci/flows", "mods/one/hook", "mods/two/hook", "plug"] {
        ensure!(!place.join(name).exists(), "{name} is on the host");
    }
    for name in [".editor/more.json", ".ci/other", "box/tasks.json", "mods/two/other", "plug-2"] {
        ensure!(place.join(name).exists(), "{name} is not on the host");
    }
    Ok(())
}

/// A pointer that is there leads git where it led at launch.
#[rustfmt::skip]
pub(super) fn pointers(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    for side in [Side::Inside, Side::Outside] {
        for dir in ["open/module", "packages/api/[odd] module"] {
            let module = ground.place(side).join(dir);
            fs::create_dir(&module)?;
            fs::write(module.join(".git"), "gitdir: ../../.git")?;
            give_all(identity, &module)?;
        }
    }
    play(&ground, &[], &[
        (&["text", "open/module/.git"], "gitdir: ../../.git"),
        (&["write", "open/module/.git", "gitdir: ../evil"], "EROFS"),
        (&["save", "open/module/.git", "gitdir: ../evil"], "EACCES"),
        (&["rename", "open/module/.git", "open/module/old"], "EACCES"),
        (&["write", "packages/api/[odd] module/.git", "gitdir: ../evil"], "EROFS"),
        (&["unlink", "packages/api/[odd] module/.git"], "EACCES"),
        (&["write", "open/module/file", "text"], "ok"),
        (&["rename", "open/module/file", "open/module/other"], "ok"),
        (&["mkdir", "open/new"], "ok"),
        (&["write", "open/new/.git", "gitdir: ../../.git"], "ok"),
        (&["rename", "open/module", "open/moved"], "EACCES"),
    ])
}

/// In a repository that is there git would follow such a file to programs of the agent's.
#[rustfmt::skip]
pub(super) fn in_the_repository(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    play(&ground, &["--protect", ".git/commondir"], &[
        (&["create", ".git/commondir"], "EACCES"),
        (&["rename", "plain.txt", ".git/commondir"], "EACCES"),
        (&["link", "plain", ".git/commondir"], "EACCES"),
        (&["symlink", "../open", ".git/commondir"], "EACCES"),
        (&["create", ".git/index.lock"], "ok"),
        (&["rename", ".git/index.lock", ".git/index"], "ok"),
        (&["save", ".git/HEAD", "ref: refs/heads/other"], "ok"),
        // Beside objects and refs, git would take the workspace itself for a repository.
        (&["rename", ".git/HEAD", "HEAD"], "EACCES"),
        (&["symlink", ".git/HEAD", "HEAD"], "EACCES"),
        (&["create", "HEAD"], "EACCES"),
        (&["mkdir", ".git/refs"], "ok"),
        (&["create", ".git/refs/main"], "ok"),
        (&["create", ".git/hooks/post-checkout"], "EACCES"),
        (&["rename", ".git", "git"], "EACCES"),
    ])?;
    ensure!(!ground.place(Side::Inside).join(".git/commondir").exists(), "it is on the host");
    Ok(())
}
