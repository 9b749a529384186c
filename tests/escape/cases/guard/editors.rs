//! How editors save: from either side the other soon has the new text, and a hidden file that is
//! saved on the host is never seen, nor what an editor leaves beside it.

use std::fs;

use anyhow::{Context as _, ensure};

use super::ground::{Ground, ensure_ended_well};
use crate::identity::Identity;
use crate::prisoner::CANARY;
use crate::talk::Talk;
use crate::world::Side;

/// A way to save: `%` stands for the file, `$` for its text.
struct Way {
    name: &'static str,
    steps: &'static [&'static [&'static str]],
}

const fn way(name: &'static str, steps: &'static [&'static [&'static str]]) -> Way {
    Way { name, steps }
}

#[rustfmt::skip]
const WAYS: &[Way] = &[
    way("in place", &[&["write", "%", "$"]]),
    way("by a new file", &[&["write", "%.new", "$"], &["rename", "%.new", "%"]]),
    way("by a new file of another name", &[&["write", "{dir}sedXa1b2C", "$"], &["rename", "{dir}sedXa1b2C", "%"]]),
    way("the old one linked", &[&["link", "%", "%~"], &["write", "%.new", "$"], &["rename", "%.new", "%"], &["unlink", "%~"]]),
    way("the old one moved away", &[&["rename", "%", "%~"], &["write", "%", "$"], &["unlink", "%~"]]),
    way("the old one copied", &[&["write", "%~", "$"], &["write", "%", "$"]]),
    way("the old one kept", &[&["rename", "%", "%~"], &["write", "%", "$"]]),
    way("both moved", &[&["write", "%___jb_tmp___", "$"], &["rename", "%", "%___jb_old___"], &["rename", "%___jb_tmp___", "%"], &["unlink", "%___jb_old___"]]),
    way("both exchanged", &[&["write", "%.new", "$"], &["exchange", "%.new", "%"], &["unlink", "%.new"]]),
    way("gone in between", &[&["unlink", "%"], &["write", "%", "$"]]),
];

/// At a guarded level, at a deeper one, and where nothing is guarded.
const DIRS: [&str; 3] = ["", "packages/api/", "open/"];

/// Saves `text` at the name `file` in `dir`, by the hand of whoever `talk` is with.
fn save(talk: &mut Talk<'_>, way: &Way, dir: &str, file: &str, text: &str) -> anyhow::Result<()> {
    for step in way.steps {
        let word = |word: &&str| {
            word.replace('%', &format!("{dir}{file}")).replace("{dir}", dir).replace('$', text)
        };
        let words: Vec<String> = step.iter().map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = talk.ask(&words)?;
        ensure!(said == "ok", "{}: {words:?}: {said}", way.name);
    }
    Ok(())
}

/// The agent and the host save the same file in turn.
pub(super) fn both(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let place = ground.place(Side::Inside);
    let (mut agent, mut host) = (ground.talk(Side::Inside)?, Talk::outside(&ground.world)?);
    for (number, (dir, way)) in all().enumerate() {
        let (of_agent, of_host) =
            (format!("of the agent {number}"), format!("of the host {number}"));
        save(&mut agent, way, dir, "plain.txt", &of_agent)?;
        let found = fs::read_to_string(place.join(dir).join("plain.txt"))?;
        ensure!(found == of_agent, "{} in {dir:?}: the host has {found:?}", way.name);
        let on_host = format!("{}/{dir}", place.display());
        save(&mut host, way, &on_host, "plain.txt", &of_host)?;
        let seen = agent.wait_for(&["text", &format!("{dir}plain.txt")], &of_host);
        seen.with_context(|| format!("{} in {dir:?}", way.name))?;
    }
    ensure_ended_well(host)?;
    ensure_ended_well(agent)
}

/// What may hold the text of `.env` at some moment of a save.
const TRACES: [&str; 6] =
    [".env", ".env~", ".env.new", ".env___jb_tmp___", ".env___jb_old___", "sedXa1b2C"];

/// The host saves hidden files while the agent looks for them.
pub(super) fn hidden(identity: Identity) -> anyhow::Result<()> {
    let ground = Ground::set(identity)?;
    let mut host = Talk::outside(&ground.world)?;
    for side in [Side::Outside, Side::Inside] {
        let mut agent = ground.talk(side)?;
        let mut read = 0;
        for (number, (dir, way)) in all().filter(|(dir, _)| *dir != "open/").enumerate() {
            let on_host = format!("{}/{dir}", ground.place(side).display());
            save(&mut host, way, &on_host, ".env", CANARY)?;
            let mut look = |agent: &mut Talk<'_>| -> anyhow::Result<()> {
                for trace in TRACES {
                    let path = format!("{dir}{trace}");
                    let is_read = agent.ask(&["read", &path])? == "canary";
                    ensure!(side == Side::Outside || !is_read, "{}: {path} is read", way.name);
                    read += usize::from(is_read);
                }
                Ok(())
            };
            look(&mut agent)?;
            // What is new beside a hidden file is shown after a while: by then it must be known.
            let after = format!("{dir}after-{number}");
            ground.put_text(side, &after, way.name)?;
            agent.wait_for(&["text", &after], way.name)?;
            look(&mut agent)?;
        }
        ensure!(side == Side::Inside || read > 2 * WAYS.len(), "the control read {read}");
        ensure_ended_well(agent)?;
    }
    ensure_ended_well(host)
}

fn all() -> impl Iterator<Item = (&'static str, &'static Way)> {
    DIRS.into_iter().flat_map(|dir| WAYS.iter().map(move |way| (dir, way)))
}
