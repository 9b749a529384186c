//! Home and workspace on a made-up host.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::policy::{self, FileRules, Overlay, PolicyChoice, Profiles};
use crate::surroundings::Surroundings;

/// A user's home with a workspace, on a disk with nothing else.
pub(super) struct Host {
    pub(super) root: tempfile::TempDir,
    pub(super) surroundings: Surroundings,
}

impl Host {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        fs::create_dir_all(home.join("work")).unwrap();
        let surroundings = Surroundings {
            config_home: home.join(".config"),
            state_home: home.join(".local/state"),
            cwd: home.join("work"),
            etc: root.path().join("etc"),
            env: BTreeMap::new(),
            home,
        };
        Self { root, surroundings }
    }

    fn home(&self, path: &str) -> PathBuf {
        self.surroundings.home.join(path)
    }

    fn write(&self, path: &str, body: &str) -> PathBuf {
        let path = self.home(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, body).unwrap();
        path
    }

    fn program(&self, path: &str) -> PathBuf {
        let path = self.write(path, "#!/bin/sh\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.surroundings.env.insert(name.into(), value.as_ref().to_owned());
    }

    fn set_path(&mut self, entries: &[PathBuf]) {
        let joined = std::env::join_paths(entries).unwrap();
        self.set("PATH", joined);
    }

    fn probe(&self, command: &str) -> HomeView {
        let command = Some(OsStr::new(command));
        let profiles = Profiles::choose(None, command).unwrap();
        probe(&self.surroundings, &profiles, &self.surroundings.cwd, &[], command)
    }

    /// What is shown, each below the home.
    fn shown(&self, list: &[Shown]) -> Vec<String> {
        list.iter()
            .map(|shown| {
                let path = shown.at.strip_prefix(&self.surroundings.home).unwrap_or(&shown.at);
                path.display().to_string()
            })
            .collect()
    }

    fn rules(&self, fs_lines: &str) -> FileRules {
        let file = self.root.path().join("policy.toml");
        fs::write(&file, format!("version = 1\nextends = []\n[fs]\n{fs_lines}\n")).unwrap();
        let overlay = Overlay { policy: Some(PolicyChoice::File(file)), ..Overlay::default() };
        let workspace = &self.surroundings.cwd;
        policy::load(&self.surroundings, workspace, &overlay, None, None).unwrap().policy.files
    }

    fn scan(&self, fs_lines: &str) -> Matches {
        self.survey(fs_lines).matches
    }

    fn survey(&self, fs_lines: &str) -> Survey {
        let (workspace, rules) = (&self.surroundings.cwd, self.rules(fs_lines));
        let account = AccountConfig::read(&self.surroundings);
        let alone = scan::scan_alone(usize::MAX, workspace, &rules, &account).unwrap();
        // With more than a few names the walk is another one.
        assert_eq!(scan::scan_alone(0, workspace, &rules, &account).unwrap(), alone);
        alone
    }
}

fn found(list: &[Match]) -> Vec<(&str, Kind)> {
    list.iter().map(|hit| (hit.path.to_str().unwrap(), hit.kind)).collect()
}

#[test]
fn toolchains_are_shown_and_credentials_are_not() {
    let host = Host::new();
    for file in [
        ".cargo/bin/cargo",
        ".cargo/credentials.toml",
        ".cargo/registry/x",
        ".rustup/toolchains/x",
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".nvm/versions/x",
        ".npm/_cacache/x",
        ".config/gh/hosts.yml",
        ".cache/huggingface/token",
    ] {
        host.write(file, "x");
    }
    host.write(".claude/settings.json", "{}");
    host.write(".claude.json", "{}");
    let view = host.probe("claude");
    assert_eq!(view.home, host.surroundings.home);
    assert_eq!(host.shown(&view.keep), [".claude", ".claude.json"]);
    assert_eq!(host.shown(&view.read), [".cargo/bin", ".nvm", ".rustup"]);
    assert_eq!(host.shown(&view.caches), [".cargo/registry", ".npm"]);
    assert_eq!(host.shown(&host.probe("true").keep), [] as [&str; 0]);
}

#[test]
fn settings_are_shown_only_without_secrets() {
    let host = Host::new();
    host.write(".npmrc", "registry=https://r.example/\n");
    host.write(".gitconfig", "[user]\nemail = a@b.example\n");
    assert_eq!(host.shown(&host.probe("x").read), [".gitconfig", ".npmrc"]);
    host.write(".npmrc", "//r.example/:_authToken=abc\n");
    host.write(".gitconfig", "[url \"https://name:word@git.example/\"]\n");
    assert_eq!(host.shown(&host.probe("x").read), [] as [&str; 0]);
    // A link out of the home is followed to what it shows.
    fs::remove_file(host.home(".gitconfig")).unwrap();
    let dotfile = host.write("dotfiles/gitconfig", "[user]\nname = A\n");
    symlink(&dotfile, host.home(".gitconfig")).unwrap();
    let view = host.probe("x");
    assert_eq!(view.read, [Shown { at: host.home(".gitconfig"), from: dotfile }]);
}

#[test]
fn a_listed_name_that_leads_to_keys_is_not_shown() {
    let host = Host::new();
    host.write(".ssh/id_ed25519", "x");
    for link in [".nvm", ".claude", ".npm"] {
        symlink(host.home(".ssh"), host.home(link)).unwrap();
    }
    symlink(host.home(""), host.home(".rustup")).unwrap();
    symlink("/", host.home(".pyenv")).unwrap();
    let view = host.probe("claude");
    assert_eq!((view.keep, view.read, view.caches), (vec![], vec![], vec![]));
}

#[test]
fn variables_that_move_a_toolchain_are_followed() {
    let mut host = Host::new();
    let moved = host.root.path().join("elsewhere");
    for part in ["cargo/bin", "cargo/registry", "venv/bin"] {
        fs::create_dir_all(moved.join(part)).unwrap();
    }
    host.write(".cargo/bin/cargo", "x");
    host.set("CARGO_HOME", moved.join("cargo"));
    host.set("VIRTUAL_ENV", moved.join("venv"));
    // A variable that names the home or the machine moves nothing there.
    host.set("NVM_DIR", host.surroundings.home.clone());
    host.set("CONDA_PREFIX", "/");
    let view = host.probe("x");
    let at = |list: &[Shown]| list.iter().map(|shown| shown.at.clone()).collect::<Vec<_>>();
    assert_eq!(at(&view.read), [moved.join("cargo/bin"), moved.join("venv")]);
    assert_eq!(at(&view.caches), [moved.join("cargo/registry")]);
}

#[test]
fn the_search_path_keeps_what_is_visible_inside() {
    let mut host = Host::new();
    host.program(".npm-global/bin/tool");
    host.write(".npm-global/lib/node_modules/tool/cli.js", "x");
    host.write(".npm-global/etc/secret", "x");
    host.program("bin/own");
    host.program(".ssh/bin/odd");
    host.program("work/node_modules/.bin/tsc");
    let elsewhere = host.root.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    host.set_path(&[
        host.home(".npm-global/bin"),
        host.home("bin"),
        host.home(".ssh/bin"),
        host.home("work/node_modules/.bin"),
        host.home(""),
        elsewhere,
        ".".into(),
        "node_modules/.bin".into(),
        "/usr/bin".into(),
        "/usr/bin".into(),
    ]);
    let view = host.probe("x");
    assert_eq!(host.shown(&view.read), [".npm-global/bin", ".npm-global/lib", "bin"]);
    assert_eq!(
        view.path,
        [
            host.home(".npm-global/bin"),
            host.home("bin"),
            host.home("work/node_modules/.bin"),
            "/usr/bin".into(),
        ]
    );
}

#[test]
fn a_command_is_shown_through_every_link_that_it_leads_through() {
    let mut host = Host::new();
    let target = host.program("apps/agent/lib/node_modules/agent/cli.js");
    host.write("apps/agent/.env", "x");
    fs::create_dir_all(host.home("links")).unwrap();
    symlink(&target, host.home("links/second")).unwrap();
    fs::create_dir_all(host.root.path().join("start/bin")).unwrap();
    symlink(host.home("links/second"), host.root.path().join("start/bin/agent")).unwrap();
    host.set_path(&[host.root.path().join("start/bin")]);
    let view = host.probe("agent");
    let at: Vec<PathBuf> = view.read.iter().map(|shown| shown.at.clone()).collect();
    assert_eq!(
        at,
        [
            host.home("apps/agent/lib/node_modules"),
            host.home("links/second"),
            host.root.path().join("start/bin"),
        ]
    );
    assert_eq!(view.path, [host.root.path().join("start/bin")]);
}

#[test]
fn a_home_behind_a_link_is_shown_at_its_real_place() {
    let mut host = Host::new();
    host.program(".cargo/bin/cargo");
    let link = host.root.path().join("link");
    symlink(&host.surroundings.home, &link).unwrap();
    let real = std::mem::replace(&mut host.surroundings.home, link.clone());
    host.set_path(&[link.join(".cargo/bin")]);
    let view = host.probe("cargo");
    assert_eq!(view.home, real);
    let at = real.join(".cargo/bin");
    assert_eq!(view.read, [Shown { at: at.clone(), from: at.clone() }]);
    assert_eq!(view.path, [at]);
}

#[test]
fn a_home_of_the_whole_machine_shows_nothing() {
    let mut host = Host::new();
    host.surroundings.home = "/".into();
    host.set_path(&["/usr/bin".into(), "/root".into()]);
    let view = host.probe("claude");
    assert_eq!(view, HomeView { path: vec!["/usr/bin".into()], ..HomeView::default() });
}

#[test]
fn the_smallest_set_is_covered_and_hidden_beats_protected() {
    let host = Host::new();
    for file in [
        "work/.env",
        "work/.env.example",
        "work/a/b/.env",
        "work/.git/hooks/pre-commit",
        "work/.git/config",
        "work/infra/production/main.tf",
        "work/infra/.env",
        "work/secrets/deep/key",
        "work/target/.env",
        "work/src/main.rs",
    ] {
        host.write(file, "x");
    }
    host.write("work/.gitignore", "target/\nsecrets/\n");
    let matches = host.scan(
        "hide = [\"**/.env\", \"**/.env.*\", \"!**/.env.example\", \"secrets/**\"]\n\
         protect = [\"infra/**\", \".git/hooks/**\", \".git/config\", \"secrets/deep/**\"]",
    );
    assert_eq!(
        found(&matches.hidden),
        [
            (".env", Kind::File),
            ("a/b/.env", Kind::File),
            ("infra/.env", Kind::File),
            ("secrets", Kind::Dir),
            ("target/.env", Kind::File),
        ]
    );
    assert_eq!(
        found(&matches.protected),
        [(".git/config", Kind::File), (".git/hooks", Kind::Dir), ("infra", Kind::Dir)]
    );
}

#[test]
fn links_lead_to_what_they_hide() {
    let host = Host::new();
    host.write("work/shared/env", "x");
    host.write("work/hooks/pre-commit", "x");
    host.write("outside", "x");
    for (target, link) in [
        ("../shared/env", "work/app/.env"),
        ("../../outside", "work/b/.env"),
        ("missing", "work/c/.env"),
        ("../hooks", "work/.git/hooks"),
        ("..", "work/d/.env"),
    ] {
        let link = host.home(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(target, link).unwrap();
    }
    let matches = host.scan("hide = [\"**/.env\"]\nprotect = [\".git/hooks/**\"]");
    assert_eq!(
        found(&matches.hidden),
        [
            ("app/.env", Kind::Link),
            ("b/.env", Kind::Link),
            ("c/.env", Kind::Link),
            ("d/.env", Kind::Link),
            ("shared/env", Kind::File),
        ]
    );
    assert_eq!(found(&matches.protected), [(".git/hooks", Kind::Link), ("hooks", Kind::Dir)]);
}

#[test]
fn a_second_name_of_a_hidden_file_is_hidden_too() {
    let host = Host::new();
    let env = host.write("work/.env", "x");
    host.write("work/notes/readme", "x");
    fs::hard_link(&env, host.home("work/notes/env.lnk")).unwrap();
    let matches = host.scan("hide = [\".env\"]");
    assert_eq!(found(&matches.hidden), [(".env", Kind::File), ("notes/env.lnk", Kind::File)]);
}

#[test]
fn what_is_no_file_is_covered_all_the_same() {
    let host = Host::new();
    for (mode, name) in [(0o644, "work/a/.env"), (0o644, "work/b/.env")] {
        let path = host.home(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(mode)).unwrap();
    }
    fs::create_dir_all(host.home("work/c/.env/inner")).unwrap();
    let matches = host.scan("hide = [\"**/.env\"]");
    assert_eq!(
        found(&matches.hidden),
        [("a/.env", Kind::File), ("b/.env", Kind::File), ("c/.env", Kind::Dir)]
    );
}

#[test]
fn a_directory_that_cannot_be_read_is_hidden() {
    let host = Host::new();
    host.write("work/shut/.env", "x");
    let shut = host.home("work/shut");
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    let readable = fs::read_dir(&shut).is_ok();
    let matches = host.scan("hide = [\"**/.env\"]");
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o755)).unwrap();
    // Root reads everything, and so finds the file itself.
    let expected = if readable { ("shut/.env", Kind::File) } else { ("shut", Kind::Dir) };
    assert_eq!(found(&matches.hidden), [expected]);
}

#[test]
fn a_workspace_without_matches_has_none() {
    let host = Host::new();
    host.write("work/src/main.rs", "x");
    assert_eq!(host.scan("hide = [\"**/.env\"]\nprotect = [\"infra/**\"]"), Matches::default());
    for few in [0, 1] {
        let (nowhere, account) = (Path::new("/nowhere/at/all"), AccountConfig::default());
        let nowhere = scan::scan_alone(few, nowhere, &FileRules::default(), &account);
        assert!(nowhere.is_err_and(|error| error.to_string().contains("/nowhere/at/all")));
    }
}

#[test]
fn what_is_said_of_git_directories_is_said_of_each_there_is() {
    let host = Host::new();
    for file in [
        "work/.git/hooks/x",
        "work/.git/config",
        "work/.git/modules/lib/HEAD",
        "work/.git/modules/lib/objects/x",
        "work/.git/modules/lib/config",
        "work/.git/modules/lib/refs/heads/hooks",
        "work/.git/modules/lib/refs/heads/config",
        "work/.git/worktrees/wt/HEAD",
        "work/.git/worktrees/wt/commondir",
        "work/deep/a/.git/hooks/x",
        "work/bare/HEAD",
        "work/bare/objects/x",
        "work/bare/config",
        "work/lib/.git",
        "work/src/HEAD",
        "work/src/config",
    ] {
        host.write(file, "x");
    }
    let survey = host
        .survey("protect = [\".git/hooks/**\", \".git/config\", \".git/commondir\", \".git/w*\"]");
    assert_eq!(
        found(&survey.matches.protected),
        [
            (".git/config", Kind::File),
            (".git/hooks", Kind::Dir),
            (".git/modules/lib/config", Kind::File),
            (".git/worktrees", Kind::Dir),
            ("bare/config", Kind::File),
            ("deep/a/.git/hooks", Kind::Dir),
            ("lib/.git", Kind::File),
        ]
    );
    let paths = |set: &BTreeSet<PathBuf>| -> Vec<String> {
        set.iter().map(|path| path.display().to_string()).collect()
    };
    assert_eq!(
        paths(&survey.sights.git_dirs),
        [".git", ".git/modules/lib", ".git/worktrees/wt", "bare", "deep/a/.git"]
    );
    assert_eq!(paths(&survey.sights.pointers), ["lib/.git"]);
}

#[test]
fn the_directory_that_holds_the_hooks_is_protected() {
    let host = Host::new();
    let link = |name: &str, path: &str| {
        host.write(&format!("work/{name}/HEAD"), "x");
        host.write(&format!("work/{name}/objects/x"), "x");
        host.write(&format!("work/{name}/config"), &format!("[core]\nhooksPath = {path}\n"));
    };
    link(".git", "tools/hooks");
    link("web/.git", ".husky/_");
    link("out/.git", "../../elsewhere");
    link("all/.git", "..");
    link(".git/modules/lib", "shared");
    host.write("work/.git/modules/lib/config", "[core]\nworktree=../../../lib\nhooksPath=h");
    let tree = host.home("work/wt/.git").display().to_string();
    host.write("work/.git/worktrees/wt/gitdir", &format!("{tree}\n"));
    host.write("work/tools/hooks/pre-commit", "x");
    let survey = host.survey("protect = []");
    assert_eq!(found(&survey.matches.protected), [("tools/hooks", Kind::Dir)]);
    let covers = |path: &str| survey.files.protect.covers(Path::new(path)).is_some();
    for path in ["tools/hooks/x", "wt/tools/hooks/x", "web/.husky/pre-commit", "lib/h/x"] {
        assert!(covers(path), "{path}");
    }
    for path in ["tools/x", "web/x", "all/x", "elsewhere/x", "h/x"] {
        assert!(!covers(path), "{path}");
    }
}

#[test]
fn hooks_that_the_account_names_are_protected_in_each_repository() {
    let host = Host::new();
    for name in [".git", "web/.git"] {
        host.write(&format!("work/{name}/HEAD"), "x");
        host.write(&format!("work/{name}/objects/x"), "x");
    }
    host.write("work/.git/config", "[include]\npath = more\n[core]\nbare = false\n");
    host.write(
        "work/.git/more",
        "[core]\nhooksPath = by-include\n[include]\npath = more\npath = more\n",
    );
    host.write(".gitconfig", "[includeIf \"gitdir:~/\"]\npath = ~/work.inc\n");
    host.write("work.inc", "[core]\nhooksPath = .githooks\n");
    host.write(".config/git/config", "[core]\nhooksPath = ~/work/shared/hooks\n");
    host.write("../etc/gitconfig", "[core]\nhooksPath = /usr/share/hooks\n");
    let survey = host.survey("protect = []");
    let covers = |path: &str| survey.files.protect.covers(Path::new(path)).is_some();
    for path in [".githooks/x", "web/.githooks/x", "by-include/x", "shared/hooks/x"] {
        assert!(covers(path), "{path}");
    }
    for path in ["web/by-include/x", "shared/x", "web/shared/hooks/x", "usr/share/hooks/x"] {
        assert!(!covers(path), "{path}");
    }
}
