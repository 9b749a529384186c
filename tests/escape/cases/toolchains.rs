//! The toolchains of every day in a fresh clone, where nothing of theirs is yet: with all that is
//! closed by name, they work as they do without a jail, and the host has what they made.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::Case;
use crate::identity::{Identity, new_command};
use crate::needs::{Need, toolchain};
use crate::row::Defence;
use crate::run::{Ran, start};
use crate::world::World;

pub(super) const CASES: &[Case] = &[
    case("cargo_builds_and_tests_a_fresh_clone", &[Need::Toolchain], cargo),
    case("npm_installs_into_a_fresh_clone", &[Need::File("/usr/bin/npm")], npm),
    case("pip_installs_into_a_fresh_environment", &[Need::PythonEnvironments], pip),
    case("git_works_in_a_fresh_clone", &[Need::File("/usr/bin/git")], git),
    case("git_works_in_a_linked_worktree", &[Need::File("/usr/bin/git")], worktree),
];

const fn case(
    name: &'static str,
    needs: &'static [Need],
    run: fn(Identity) -> anyhow::Result<()>,
) -> Case {
    Case { name, defence: Defence::None, needs, run }
}

/// A clone of what a script made, in the workspace and in the twin that no jail shows.
struct Clone {
    world: World,
    path: String,
}

/// What each clone has beside its code: closed names, as a project has them.
const CLOSED: &str = "mkdir -p infra/production packages/api && echo x >infra/production/main.tf \
                      && echo SECRET >packages/api/.env && echo SECRET >.env";

impl Clone {
    fn of(identity: Identity, make: &str) -> anyhow::Result<Self> {
        let world = World::set(identity, &[])?;
        let clone = Self { world, path: "/usr/bin:/bin".to_owned() };
        let ran = clone.outside(&format!(
            "cd ..; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a \
             GIT_COMMITTER_EMAIL=a; git init -q -b main origin; cd origin; {make}; git add -A; \
             git commit -qm first; cd ..; for place in work spare; do git clone -q origin $place; \
             (cd $place; {CLOSED}); done"
        ))?;
        ensure!(ran.code == Some(0), "the clone was not made: {ran}");
        Ok(clone)
    }

    /// Runs `script` in the twin, without a jail.
    fn outside(&self, script: &str) -> anyhow::Result<Ran> {
        let mut command = self.world.identity.command("sh")?;
        command
            .args(["-ec", script])
            .env("HOME", self.world.path("home"))
            .env("PATH", &self.path)
            .current_dir(self.world.path("spare"));
        start(&mut command, self.world.root())?.end()
    }

    fn inside(&self, script: &str) -> anyhow::Result<Ran> {
        let mut command = self.world.jail_for(&[])?;
        command.args(["--", "sh", "-ec", script]).env("PATH", &self.path);
        start(&mut command, self.world.root())?.end()
    }

    /// `script` ends well on both sides and says the same, which holds `expected`.
    fn works(&self, script: &str, expected: &str) -> anyhow::Result<()> {
        let outside = self.outside(script)?;
        ensure!(outside.code == Some(0), "the control: {outside}");
        ensure!(outside.stdout.contains(expected), "the control says something else: {outside}");
        let inside = self.inside(script)?;
        ensure!(inside.code == Some(0), "{inside}");
        ensure!(inside.stdout.contains(expected), "{inside}");
        Ok(())
    }

    /// What was made inside is on the host.
    fn has_made(&self, name: &str) -> anyhow::Result<()> {
        ensure!(self.world.work().join(name).exists(), "the host has no {name}");
        Ok(())
    }
}

fn cargo(identity: Identity) -> anyhow::Result<()> {
    let mut clone = Clone::of(
        identity,
        "mkdir src; echo target >.gitignore; printf '[package]\\nname = \"small\"\\nversion = \
         \"0.1.0\"\\nedition = \"2021\"\\n' >Cargo.toml; printf '#[test]\\nfn holds() { \
         assert_eq!(2 + 2, 4) }\\n' >src/lib.rs; printf 'fn main() { println!(\"built\") }\\n' \
         >src/main.rs",
    )?;
    // In the home, where rustup has it. Links take no room.
    let toolchain = toolchain().context("no toolchain")?;
    let own = clone.world.path("home/.rustup/toolchains/stable");
    fs::create_dir_all(own.parent().context("no parent")?)?;
    link_all(&toolchain, &own)?;
    for path in ["home/.rustup", "home/.rustup/toolchains"] {
        identity.give(&clone.world.path(path))?;
    }
    clone.path = format!("{}/bin:{}", own.display(), clone.path);
    clone.works("cargo test --offline --quiet && cargo run --offline --quiet", "built")?;
    clone.has_made("target/debug/small")
}

/// The toolchain at `from` once more, at `to`.
fn link_all(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied =
        new_command("cp".as_ref()).args(["--archive", "--link"]).args([from, to]).output()?;
    // Elsewhere than on one filesystem it takes longer.
    if !copied.status.success() {
        let copied = new_command("cp".as_ref())
            .args(["--archive", "--force", "--no-target-directory"])
            .args([from, to])
            .output()?;
        ensure!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    }
    Ok(())
}

fn npm(identity: Identity) -> anyhow::Result<()> {
    let clone = Clone::of(
        identity,
        "mkdir -p hello vendor; printf '{\"name\":\"hello\",\"version\":\"1.0.0\",\"bin\":\
         \"hello.js\"}' >hello/package.json; printf '#!/usr/bin/env node\\nconsole.log(\"hello \
         from \" + require(\"path\").basename(process.cwd()))\\n' >hello/hello.js; chmod +x \
         hello/hello.js; (cd vendor; npm pack --silent ../hello >/dev/null); rm -r hello; \
         printf '{\"name\":\"app\",\"version\":\"1.0.0\",\"dependencies\":{\"hello\":\
         \"file:vendor/hello-1.0.0.tgz\"}}' >package.json; npm install --offline --silent; \
         rm -r node_modules; echo node_modules >.gitignore",
    )?;
    clone.works("npm ci --offline --silent && npx --offline hello", "hello from ")?;
    clone.has_made("node_modules/.bin/hello")
}

fn pip(identity: Identity) -> anyhow::Result<()> {
    let clone = Clone::of(
        identity,
        "mkdir dist; echo .venv >.gitignore; /usr/bin/python3 -c \"
import zipfile
info = 'hello-1.0.dist-info'
with zipfile.ZipFile('dist/hello-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('hello.py', 'def main(): print(\\\"hello from a wheel\\\")\\n')
    wheel.writestr(info + '/METADATA', 'Metadata-Version: 2.1\\nName: hello\\nVersion: 1.0\\n')
    wheel.writestr(info + '/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + '/entry_points.txt', '[console_scripts]\\nhello = hello:main\\n')
    wheel.writestr(info + '/RECORD', '')
\"",
    )?;
    clone.works(
        "/usr/bin/python3 -m venv .venv && .venv/bin/pip install --quiet --no-index \
         --disable-pip-version-check dist/*.whl && .venv/bin/hello",
        "hello from a wheel",
    )?;
    clone.has_made(".venv/bin/hello")
}

fn git(identity: Identity) -> anyhow::Result<()> {
    let clone = Clone::of(identity, "echo one >one; mkdir sub; echo two >sub/two")?;
    clone.works(
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; \
         git status --short; git checkout -qb topic; echo more >>one; git add one sub; \
         git commit -qm second; echo change >>sub/two; git stash -q; git stash pop -q; \
         git diff --stat; git commit -qam third; git checkout -q main; \
         git merge -q --no-edit topic; git rebase -q topic; git remote add other ../origin; \
         git branch -d topic; git mv one uno; git commit -qm moved; git log --oneline | wc -l",
        "4",
    )?;
    clone.has_made("uno")
}

/// The workspace is a linked worktree of a repository outside: commits arrive there, and nothing
/// that git would run or follow can be put there.
fn worktree(identity: Identity) -> anyhow::Result<()> {
    let clone = Clone::of(identity, "echo one >one")?;
    let ran = clone.outside(&format!(
        "cd ..; rm -rf work spare; cd origin; echo main >main-only; for place in work spare; do \
         git worktree add -q -b $place ../$place; (cd ../$place; {CLOSED}); done"
    ))?;
    ensure!(ran.code == Some(0), "the worktrees were not made: {ran}");
    let repository = clone.world.path("origin/.git");
    let read = |name: &str| fs::read(repository.join(name)).with_context(|| name.to_owned());
    clone.works(
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; \
         git status --short; echo more >>one; git add one; git commit -qm second; \
         echo change >>one; git stash -q; git stash pop -q; git commit -qam third; \
         git branch old-$(basename $PWD); git pack-refs --all; git branch -qD old-$(basename $PWD); \
         git config branch.$(basename $PWD).description text; git gc -q; \
         git checkout -qb topic-$(basename $PWD); git rebase -q HEAD~1; git log --oneline | wc -l",
        "3",
    )?;
    let log = clone.outside("cd ../origin; git log --oneline work | wc -l; ls main-only")?;
    ensure!(log.stdout.trim() == "3\nmain-only", "the repository has another history: {log}");
    let guarded = ["config", "HEAD", "index", "worktrees/work/commondir", "worktrees/work/gitdir"];
    let before = guarded.map(read).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let attack = clone.inside(
        "c=$(git rev-parse --git-common-dir); g=$(git rev-parse --git-dir); set +e; \
         echo x >$c/hooks/post-commit && echo HOOK; git config core.fsmonitor evil && echo CONFIG; \
         echo x >$c/HEAD && echo HEAD; mv $c/config $c/x && echo MOVED; mv $c/worktrees $c/w && echo \
         TREES; rm -f $c/index && echo INDEX; \
         for f in commondir gitdir config.worktree info/attributes hooks/pre-commit; do \
         mkdir -p $g/info $g/hooks; echo x >$g/$f && echo WRITTEN; ln -sf /etc $g/$f && echo LINKED; \
         echo y >$g/new; mv $g/new $g/$f && echo REPLACED; done; ls $c/../main-only && echo SEEN; \
         echo gitdir: evil >.git && echo POINTER; mv .git x && echo AWAY; true",
    )?;
    ensure!(attack.code == Some(0) && attack.stdout.trim().is_empty(), "{attack}");
    let after = guarded.map(read).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(before == after, "what leads git was changed");
    let hooks = repository.join("hooks/post-commit").exists();
    ensure!(!hooks && !repository.join("worktrees/work/config.worktree").exists(), "a plant");
    Ok(())
}
