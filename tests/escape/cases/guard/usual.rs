//! What programs do to names every day: with the guard in between each answer is the kernel's own,
//! and the host finds what it would have found without.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::ensure;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::photograph::{Shape, differences, photograph, shapes};
use crate::world::Side;

/// Guarded directories at two depths, one that is not guarded, and the same answers in each: `%`
/// in a word stands for it.
const BASES: [&str; 3] = [".", "packages/api", "open"];

#[rustfmt::skip]
const STEPS: &[&[&str]] = &[
    // Files, with mode and umask.
    &["create-with", "%/a", "666", "022"], &["stat", "%/a"], &["text", "%/a"],
    &["create-with", "%/b", "777", "077"], &["stat", "%/b"],
    &["create-with", "%/a", "666", "022"],
    &["create", "%/a"], &["open", "%/a", "creat", "excl", "wronly"],
    &["open", "%/missing", "wronly"], &["open", "%/missing", "rdonly", "directory", "creat"],
    &["open", "%/read-only", "rdonly", "creat"], &["stat", "%/read-only"],
    &["open", "%/a", "wronly", "creat", "trunc"], &["text", "%/a"],
    &["open", "%/slash/", "wronly", "creat"], &["open", "%/a/", "wronly", "creat"],
    &["open", "%/no/such", "wronly", "creat"], &["open", "%/a/below", "wronly", "creat"],
    &["open", "%/tree-to-be", "wronly", "creat", "nofollow", "cloexec"],
    &["create-below", "%", "below"], &["create-below", "%", "below"],
    &["write", "%/a", "text of a"], &["append", "%/a"], &["text", "%/a"],
    &["truncate", "%/b"], &["text", "%/b"], &["map", "%/a"],
    &["chmod", "%/a"], &["touch", "%/a"], &["set-attribute", "%/a"], &["stat", "%/a"],
    &["create", "%/ with 'quotes' and \n a line"], &["create", "%/*"], &["create", "%/ü"],
    &["create", "%/255"], &["create", "%/256"], &["create", ""],
    // Directories.
    &["mkdir-with", "%/d", "777", "027"], &["stat", "%/d"],
    &["mkdir-with", "%/sticky", "1777", "000"], &["stat", "%/sticky"],
    &["mkdir", "%/d"], &["mkdir", "%/a"], &["mkdir", "%/."], &["mkdir", "%/d/.."],
    &["mkdir", "%/e/"], &["mkdir", ""], &["mkdir", "%/a/below"], &["mkdir", "%/no/such"],
    &["create", "%/d/x"], &["mkdir", "%/d/y"], &["list", "%/d"],
    &["rmdir", "%/d"], &["unlink", "%/d"], &["rmdir", "%/a"], &["rmdir", "%/missing"],
    &["unlink", "%/missing"], &["unlink", "%/a/"], &["rmdir", "%/d/."], &["rmdir", "%/d/y/.."],
    // Links and pipes.
    &["symlink", "a", "%/l"], &["link-text", "%/l"], &["text", "%/l"], &["stat", "%/l"],
    &["symlink", "b", "%/l"], &["symlink", "a", "%/a"], &["symlink", "", "%/m"],
    &["symlink", "nowhere", "%/dangling"], &["text", "%/dangling"], &["mkdir", "%/dangling"],
    &["open", "%/dangling", "wronly", "creat", "excl"],
    &["open", "%/l", "wronly", "creat", "nofollow"], &["open", "%/l", "wronly", "creat"],
    &["mknod-with", "%/p", "644", "022"], &["stat", "%/p"], &["mknod-with", "%/p", "644", "022"],
    // Sockets.
    &["serve", "%/s"], &["stat", "%/s"], &["serve", "%/s"], &["bind", "%/a"], &["bind", "%/no/s"],
    &["connect-local", "%/s"], &["rename", "%/s", "%/s2"], &["connect-local", "%/s2"],
    &["unlink", "%/s2"], &["serve", "%/s"], &["bind", "%/s/"], &["unlink", "%/s"],
    // Through a link to a directory.
    &["symlink", ".", "%/way"], &["create", "%/way/through"], &["stat", "%/through"],
    &["mkdir", "%/way/across"], &["rename", "%/way/through", "%/way/across/in"],
    &["list", "%/across"], &["link", "%/way/across/in", "%/way/in"], &["unlink", "%/way/in"],
    &["unlink", "%/across/in"], &["rmdir", "%/way/across"], &["unlink", "%/way"],
    // Moving.
    &["rename", "%/a", "%/a2"], &["text", "%/a2"], &["stat", "%/a"],
    &["rename", "%/missing", "%/y"], &["rename", "%/a2", "%/d"], &["rename", "%/d", "%/a2"],
    &["rename", "%/d", "%/d/in"], &["rename", "%/e", "%/d"], &["rename", "%/d", "%/e"],
    &["list", "%/e"], 
    &["rename-new", "%/a2", "%/b"], &["rename-new", "%/b", "%/b2"], &["stat", "%/b2"],
    &["exchange", "%/a2", "%/b2"], &["text", "%/b2"], &["exchange", "%/a2", "%/missing"],
    &["exchange", "%/a2", "%/e"], &["stat", "%/e"], &["exchange", "%/a2", "%/e"],
    &["rename", "%/a2", "%/a2"], &["rename", "%/e", "%/e9/"], &["rename", "%/a2", "%/zz/"],
    &["rename", "%/l", "%/l2"], &["text", "%/l2"], &["rename", "%/p", "%/p2"], &["stat", "%/p2"],
    &["rename", "%/b2", "%/a2"], &["text", "%/a2"], &["stat", "%/b2"],
    // Into and out of what is not guarded.
    &["mkdir", "%/deep"], &["mkdir", "%/deep/er"], &["create", "%/deep/er/x"],
    &["rename", "%/a2", "%/deep/er/a3"], &["text", "%/deep/er/a3"], &["stat", "%/a2"],
    &["rename", "%/deep/er/a3", "%/a4"], &["text", "%/a4"],
    &["rename", "%/deep/er", "%/risen"], &["list", "%/risen"], &["list", "%/deep"],
    &["rename", "%/risen", "%/deep/sunk"], &["list", "%/deep/sunk"],
    &["exchange", "%/a4", "%/deep/sunk/x"], &["text", "%/deep/sunk/x"],
    &["exchange", "%/a4", "%/deep/sunk/x"],
    &["rename", "%/deep", "%/deeper"], &["list", "%/deeper"], &["create", "%/deeper/new"],
    // Other names of the same.
    &["link", "%/a4", "%/h"], &["stat", "%/h"], &["link", "%/a4", "%/h"],
    &["link", "%/deeper", "%/h2"], &["link", "%/missing", "%/h2"], &["link", "%/l2", "%/l3"],
    &["link-text", "%/l3"], &["link", "%/a4", "%/deeper/h3"], &["stat", "%/a4"],
    &["rename", "%/a4", "%/h"], &["stat", "%/a4"], &["unlink", "%/h"], &["stat", "%/a4"],
    &["text", "%/deeper/h3"], &["link", "%/deeper/h3", "%/h4"], &["stat", "%/h4"],
    // An editor's save, twice, and a script.
    &["save", "%/saved", "one"], &["save", "%/saved", "two"], &["text", "%/saved"],
    &["stat", "%/saved"], &["save", "%/l2", "three"], &["stat", "%/l2"],
    &["write", "%/run.sh", "#!/bin/sh\necho ran\n"], &["run", "%/run.sh"], &["run", "%/run.sh"],
    // Gone.
    &["unlink", "%/saved"], &["stat", "%/saved"], &["unlink", "%/p2"], &["unlink", "%/dangling"],
    &["rmdir", "%/sticky"], &["remove-tree", "%/deeper"], &["unlink", "%/h4"], &["list", "%"],
];

/// The same steps in a tree that no jail shows: the same answers, and the same tree in the end.
pub(super) fn usual(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let (mut inside, mut outside) = (ground.talk(Side::Inside)?, ground.talk(Side::Outside)?);
    let mut wrong = Vec::new();
    for base in BASES {
        for step in STEPS {
            let words: Vec<String> = step.iter().map(|word| word_in(base, word)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (said, expected) = (inside.ask(&words)?, outside.ask(&words)?);
            if said != expected {
                wrong.push(format!("{words:?} inside: {said} instead of {expected}"));
            }
        }
    }
    ensure_ended_well(inside)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let shapes = |side| Ok::<_, anyhow::Error>(shapes(photograph(&ground.place(side))?));
    let (found, expected): (Found, Found) = (shapes(Side::Inside)?, shapes(Side::Outside)?);
    let different = differences(&found, &expected);
    ensure!(different.is_empty(), "different on the host: {different:?}");
    ensure!(found.len() > 60, "only {} names", found.len());
    Ok(())
}

type Found = BTreeMap<PathBuf, Shape>;

fn word_in(base: &str, word: &str) -> String {
    let word = word.replace('%', base);
    match word.strip_suffix("/255").map(|dir| (dir, 255)) {
        Some((dir, length)) => format!("{dir}/{}", "n".repeat(length)),
        None => word
            .strip_suffix("/256")
            .map_or(word.clone(), |dir| format!("{dir}/{}", "n".repeat(256))),
    }
}

/// What the agent makes is the caller's on the host at once, with the inode that it had inside.
pub(super) fn seen(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let place = ground.place(Side::Inside);
    let mut talk = ground.talk(Side::Inside)?;
    let owner = place.metadata()?.uid();
    let mut do_it = |words: &[&str]| {
        let said = talk.ask(words)?;
        ensure!(said == "ok", "{words:?}: {said}");
        Ok(())
    };
    for base in BASES {
        let at = |name: &str| format!("{base}/{name}");
        let on_host = |name: &str| place.join(base).join(name);
        do_it(&["create-with", &at("file"), "640", "0"])?;
        let made = fs::metadata(on_host("file"))?;
        ensure!((made.uid(), made.mode() & 0o7777, made.nlink()) == (owner, 0o640, 1), "{base}");
        do_it(&["mkdir-with", &at("directory"), "750", "0"])?;
        let directory = fs::metadata(on_host("directory"))?;
        ensure!((directory.uid(), directory.mode() & 0o7777) == (owner, 0o750), "{base}");
        do_it(&["rename", &at("file"), &at("directory/file")])?;
        ensure!(fs::metadata(on_host("directory/file"))?.ino() == made.ino(), "{base}: a copy");
        do_it(&["rename", &at("directory/file"), &at("back")])?;
        ensure!(fs::metadata(on_host("back"))?.ino() == made.ino(), "{base}: a copy");
        do_it(&["link", &at("back"), &at("second")])?;
        ensure!(fs::metadata(on_host("second"))?.ino() == made.ino(), "{base}: a copy");
        do_it(&["write", &at("second"), "written"])?;
        ensure!(fs::read_to_string(on_host("back"))? == "written", "{base}");
        do_it(&["unlink", &at("back")])?;
        do_it(&["rmdir", &at("directory")])?;
        ensure!(!on_host("back").exists() && !on_host("directory").exists(), "{base}");
    }
    ensure_ended_well(talk)
}
