//! Attacks by name from inside: each is refused in its own way, and afterwards the host's tree is
//! what it was, to the inode and the attribute.

use anyhow::ensure;

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::photograph::{differences, photograph};
use crate::world::Side;

/// An attack and its answer inside; outside each succeeds.
type Attack = (&'static [&'static str], &'static str);

#[rustfmt::skip]
const ATTACKS: &[Attack] = &[
    // Moving what is closed, or what it lies in.
    (&["rename", "infra", "x"], "EACCES"),
    (&["rename", "infra", "open/x"], "EACCES"),
    (&["rename", ".git", "y"], "EACCES"),
    (&["rename", ".git", "open/y"], "EACCES"),
    (&["rename", ".git/config", ".git/config.old"], "EACCES"),
    (&["rename", "packages", "p"], "EACCES"),
    (&["rename", "packages/api", "packages/service"], "EACCES"),
    (&["rename", ".env", "away"], "EACCES"),
    (&["rename", ".env", "open/away"], "EACCES"),
    (&["rename", "packages/api/.env", "packages/api/env"], "EACCES"),
    (&["rename-new", ".env", "away"], "EACCES"),
    (&["rename", "/proc/self/root{here}/infra", "x"], "EACCES"),
    (&["rename", "/proc/self/cwd/infra", "/proc/self/cwd/x"], "EACCES"),
    // Exchanging.
    (&["exchange", "infra", "open"], "EACCES"),
    (&["exchange", "open", "infra"], "EACCES"),
    (&["exchange", ".git", "open"], "EACCES"),
    (&["exchange", "open/tree", ".git/hooks"], "EACCES"),
    (&["exchange", "plain.txt", ".env"], "EACCES"),
    (&["exchange", ".env", "open/plain.txt"], "EACCES"),
    (&["exchange", "packages/api", "packages/web"], "EACCES"),
    // Replacing.
    (&["rename", "plain.txt", ".env"], "EACCES"),
    (&["rename", "open/plain.txt", ".env"], "EACCES"),
    (&["rename", "plain.txt", "infra/main.tf"], "EACCES"),
    (&["rename", "plain.txt", "infra/new.tf"], "EACCES"),
    (&["rename", "open/tree", "infra/empty"], "EACCES"),
    (&["rename", "plain.txt", ".git/config"], "EACCES"),
    (&["rename", "plain.txt", ".env.local"], "EACCES"),
    // Other names.
    (&["link", ".env", "away"], "EACCES"),
    (&["link", "packages/api/.env", "open/away"], "EACCES"),
    (&["link", "infra/main.tf", "away"], "EACCES"),
    (&["link", "plain.txt", ".env.local"], "EACCES"),
    (&["link", "plain.txt", "infra/new.tf"], "EACCES"),
    (&["link-descriptor", ".env", "away"], "EROFS"),
    (&["link-descriptor", "infra/main.tf", "away"], "EROFS"),
    (&["link-descriptor", "plain.txt", ".env.local"], "EACCES"),
    (&["link-descriptor", "open/plain.txt", "open/.env.local"], "EACCES"),
    (&["link-nameless", ".", ".env.local"], "EROFS"),
    (&["link-nameless", "open", ".env.local"], "EACCES"),
    (&["link-nameless", "open", "open/.env.local"], "EACCES"),
    (&["link-nameless", "infra", "infra/new.tf"], "EROFS"),
    // Making.
    (&["create", ".env.local"], "EACCES"),
    (&["open-the-new-way", ".env.local", "creat", "wronly"], "ENOSYS"),
    (&["create-below", "packages/api", ".env.local"], "EACCES"),
    (&["create-below-a-descriptor", "/proc/self/fd", ".", ".env.local"], "EACCES"),
    (&["mkdir", ".env.d"], "EACCES"),
    (&["mkdir", "open/.env.d/"], "EACCES"),
    (&["symlink", "plain.txt", ".env.local"], "EACCES"),
    (&["make-pipe", ".env.pipe"], "EACCES"),
    (&["bind", ".env.sock"], "EACCES"),
    (&["bind", "packages/api/.env.sock"], "EACCES"),
    (&["bind", "open/.env.sock"], "EACCES"),
    (&["bind", "infra/new.tf"], "EACCES"),
    (&["create", "infra/new.tf"], "EACCES"),
    (&["create", "infra/deep/new.tf"], "EACCES"),
    (&["mkdir", "infra/new"], "EACCES"),
    (&["create", ".git/hooks/post-merge"], "EACCES"),
    // In directories that are the agent's own, by other ways.
    (&["create", "/proc/self/cwd/open/.env.local"], "EACCES"),
    (&["create", "/proc/thread-self/root{here}/open/.env.local"], "EACCES"),
    (&["create-below-a-descriptor", "/proc/self/fd", "open", ".env.local"], "EACCES"),
    (&["create-below-a-descriptor", "/dev/fd", "open", ".env.local"], "EACCES"),
    (&["rename", "open/plain.txt", "/proc/self/cwd/open/.env.local"], "EACCES"),
    // Removing.
    (&["unlink", ".env"], "EACCES"),
    (&["unlink", "packages/api/.env"], "EACCES"),
    (&["unlink", "infra/main.tf"], "EACCES"),
    (&["rmdir", "infra/empty"], "EACCES"),
    (&["remove-tree", "infra"], "EACCES"),
    // Changing what is closed in place.
    (&["append", ".env"], "EACCES"),
    (&["open-to-truncate", ".env"], "EACCES"),
    (&["open-to-write", "infra/main.tf"], "EROFS"),
    (&["open", "infra/main.tf", "rdwr", "creat"], "EROFS"),
    (&["truncate", "infra/main.tf"], "EROFS"),
    (&["chmod", "infra"], "EROFS"),
    (&["chmod", "infra/main.tf"], "EROFS"),
    (&["touch", "infra/deep"], "EROFS"),
    (&["set-attribute", ".env"], "EROFS"),
    (&["set-attribute", ".git/hooks"], "EROFS"),
];

pub(super) fn attacks(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let before = photograph(&ground.place(Side::Inside))?;
    let mut wrong = Vec::new();
    let mut talk = ground.talk(Side::Inside)?;
    for &(words, expected) in ATTACKS {
        let said = talk.ask(words)?;
        if said != expected {
            wrong.push(format!("{words:?} inside: {said} instead of {expected}"));
        }
    }
    let read = talk.ask(&["read-by-every-root", "{here}/.env"])?;
    ensure!(read == "no canary", "by the roots of processes: {read}");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let after = photograph(&ground.place(Side::Inside))?;
    let different = differences(&before, &after);
    ensure!(different.is_empty(), "changed on the host: {different:?}");
    ensure_ended_well(talk)?;
    let after = photograph(&ground.place(Side::Inside))?;
    let different = differences(&before, &after);
    ensure!(different.is_empty(), "changed by the end: {different:?}");

    let mut talk = ground.talk(Side::Outside)?;
    for &(words, _) in ATTACKS {
        let said = talk.ask(words)?;
        if said != "ok" {
            wrong.push(format!("{words:?}, the control: {said}"));
        }
        ground.lay(Side::Outside)?;
    }
    ensure!(talk.ask(&["read-by-every-root", "{here}/.env"])? == "canary");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
