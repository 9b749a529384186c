//! What a jail costs a build, its own launch and end included, beside the bare host.
//!
//! `cargo bench --bench builds` prints medians and median ratios of wall and processor time, the
//! supervisor's included. It is no test: a shared machine is too noisy for a verdict. What is built
//! comes from the registries first, and is then built without them.

mod figures;
mod pairs;
mod place;
mod spent;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use figures::millis;
use pairs::Pairs;
use place::{Place, new_command};
use spent::spent;

const PAIRS: usize = 20;

/// Crates that a crate of every day depends on.
const CRATE: &str = r#"
[package]
name = "small"
version = "0.1.0"
edition = "2024"
[dependencies]
globset = "0.4"
serde_json = "1"
"#;

const PACKAGE: &str = r#"{
  "name": "small", "version": "0.1.0", "private": true,
  "dependencies": { "express": "4.21.2", "mocha": "11.7.4" }
}"#;

/// Something that is built, made ready once and again before each time.
struct Build {
    ready: &'static [&'static str],
    /// What is put aside before each time.
    built: &'static str,
    words: &'static [&'static str],
    /// Where its tools are installed.
    tools: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let place = Place::new()?;
    let cargo = Build {
        ready: &["cargo", "fetch", "--quiet"],
        built: "target",
        words: &["cargo", "build", "--quiet", "--offline"],
        // Without one there is no cargo to get anything ready with, which is told.
        tools: toolchain().unwrap_or_default(),
    };
    let npm = Build {
        ready: &["npm", "install", "--silent", "--no-audit", "--no-fund"],
        built: "node_modules",
        words: &["npm", "ci", "--silent", "--no-audit", "--no-fund", "--offline"],
        tools: "/usr".into(),
    };
    for (build, files) in [
        (cargo, &[("Cargo.toml", CRATE), ("src/main.rs", "fn main() {}\n")][..]),
        (npm, &[("package.json", PACKAGE)]),
    ] {
        let dir = place.path("home").join(build.words[0]);
        fs::create_dir_all(dir.join("src"))?;
        for (name, text) in files {
            fs::write(dir.join(name), text)?;
        }
        let what = build.words.join(" ");
        match build.get_ready(&place, &dir) {
            Ok(()) => writeln!(io::stdout(), "{what}: {}", build.compare(&place, &dir)?)?,
            Err(error) => writeln!(io::stdout(), "skipped {what} ({error:#})")?,
        }
    }
    Ok(())
}

impl Build {
    fn get_ready(&self, place: &Place, dir: &Path) -> anyhow::Result<()> {
        ensure!(self.host(place, dir, self.ready).status()?.success(), "it cannot be got ready");
        Ok(())
    }

    fn compare(&self, place: &Place, dir: &Path) -> anyhow::Result<String> {
        let (mut wall, mut cpu) = (Pairs::default(), Pairs::default());
        // Once to warm up.
        for pair in 0..=PAIRS {
            let jail = self.time(self.jail(place, dir), place, dir)?;
            let host = self.time(self.host(place, dir, self.words), place, dir)?;
            if pair > 0 {
                wall.add(jail.0, host.0);
                cpu.add(jail.1, host.1);
            }
        }
        Ok(format!("{wall}; CPU {cpu}"))
    }

    /// Wall and processor time.
    fn time(&self, mut command: Command, place: &Place, dir: &Path) -> anyhow::Result<(f64, f64)> {
        // Deleted only with everything: without a journal, ext4 passes by every inode that was freed
        // of late (`recently_deleted` in fs/ext4/ialloc.c), and whoever is next would pay for it.
        let built = dir.join(self.built);
        if built.exists() {
            fs::rename(built, tempfile::tempdir_in(place.path("home"))?.keep())?;
        }
        let (start, before) = (Instant::now(), spent()?);
        let status = command.stderr(Stdio::inherit()).status()?;
        ensure!(status.success(), "{command:?}: {status}");
        Ok((millis(start.elapsed()), spent()? - before))
    }

    fn host(&self, place: &Place, dir: &Path, words: &[&str]) -> Command {
        let mut command = place.command(words[0]);
        command.args(&words[1..]).current_dir(dir).env("PATH", self.path());
        command
    }

    fn jail(&self, place: &Place, dir: &Path) -> Command {
        let mut command = place.jail(&["--read", &self.tools.to_string_lossy()], self.words);
        command.current_dir(dir).env("PATH", self.path());
        command
    }

    fn path(&self) -> String {
        format!("{}/bin:/usr/local/bin:/usr/bin:/bin", self.tools.display())
    }
}

/// The toolchain itself, and not what chooses one.
fn toolchain() -> anyhow::Result<PathBuf> {
    let said = new_command("rustc".as_ref()).args(["--print", "sysroot"]).output();
    let said = String::from_utf8(said.context("there is no rustc")?.stdout)?;
    Ok(said.trim().into())
}
