//! What a jail costs those who work with many files, beside the bare host, pair by pair in one run.
//!
//! `cargo bench --bench files` prints medians and median ratios. It is no test: a shared machine is
//! too noisy for a verdict. What is timed is timed where it runs, so that a launch counts only where
//! it is asked for. Everything is in the page cache.

mod figures;
mod inside;
mod pairs;
mod place;
mod spent;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::ensure;

use figures::median;
use inside::{Inside, create, now, started, time};
use pairs::Pairs;
use place::Place;

/// What is searched: directories, and files in each.
const SEARCHED: (usize, usize) = (1_000, 50);
/// What is launched in.
const LARGE: (usize, usize) = (3_000, 100);

const PAIRS: usize = 20;
const CREATES: usize = 300;

fn main() -> anyhow::Result<()> {
    if let Some(done) = inside::perform() {
        return done;
    }
    let place = Place::new()?;
    let inside = Inside::put(&place)?;
    searches(&place, &inside)?;
    creates(&place, &inside)?;
    launch(&place, &inside)
}

/// `git status`, and a search for what is nowhere.
fn searches(place: &Place, inside: &Inside) -> anyhow::Result<()> {
    let tree = place.path("home/tree");
    grow(&tree, SEARCHED)?;
    for words in [
        &["init", "-q"][..],
        &["add", "-A"],
        &["-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "-qm", "tree"],
        &["gc", "-q"],
    ] {
        let status = place.command("git").args(words).current_dir(&tree).status()?;
        ensure!(status.success(), "git {words:?}: {status}");
    }
    let recursive = ["grep", "-r", "nowhere at all", "."];
    let search = if has(place, "rg") { &["rg", "nowhere at all", "."][..] } else { &recursive };
    for words in [&["git", "status"][..], search] {
        let (mut wall, mut cpu) = (Pairs::default(), Pairs::default());
        for _ in 0..PAIRS {
            let own = time(inside.jailed(place), words, &tree)?;
            let bare = time(inside.bare(place), words, &tree)?;
            wall.add(own.wall, bare.wall);
            cpu.add(own.cpu, bare.cpu);
        }
        let what = words.join(" ");
        writeln!(io::stdout(), "{what} in {} files: {wall}; CPU {cpu}", SEARCHED.0 * SEARCHED.1)?;
    }
    Ok(())
}

/// A file made where names are guarded.
fn creates(place: &Place, inside: &Inside) -> anyhow::Result<()> {
    let dir = place.path("home/work");
    let (mut jail, mut host) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        jail.push(create(inside.jailed(place), CREATES, &dir)?);
        host.push(create(inside.bare(place), CREATES, &dir)?);
    }
    let (jail, host) = (median(jail), median(host));
    writeln!(io::stdout(), "a create at guarded level: {jail:.3} ms, on the host {host:.3} ms")?;
    Ok(())
}

/// Until the command runs, beside a list of all files.
fn launch(place: &Place, inside: &Inside) -> anyhow::Result<()> {
    if !has(place, "rg") {
        writeln!(io::stdout(), "skipped the launch in a large tree (there is no rg)")?;
        return Ok(());
    }
    let tree = place.path("home/large");
    grow(&tree, LARGE)?;
    let mut pairs = Pairs::default();
    for _ in 0..PAIRS {
        let begin = now()?;
        let jail = started(inside.jailed(place), &tree)? - begin;
        let begin = now()?;
        let status = place.command("rg").args(["--files", "-uu"]).current_dir(&tree).status()?;
        ensure!(status.success(), "rg: {status}");
        pairs.add(jail, now()? - begin);
    }
    let files = LARGE.0 * LARGE.1;
    writeln!(io::stdout(), "start in {files} files, beside rg --files -uu: {pairs}")?;
    Ok(())
}

fn grow(tree: &Path, (directories, files): (usize, usize)) -> io::Result<()> {
    let text = "fn item() -> u32 { 42 }\n".repeat(20);
    for directory in 0..directories {
        let path = tree.join(format!("part{:02}/module{directory:04}", directory / 100));
        fs::create_dir_all(&path)?;
        for file in 0..files {
            fs::write(path.join(format!("file{file:03}.rs")), format!("// {directory}\n{text}"))?;
        }
    }
    Ok(())
}

fn has(place: &Place, program: &str) -> bool {
    let looked = place.command("sh").args(["-c", "command -v \"$0\"", program]).status();
    looked.is_ok_and(|status| status.success())
}
