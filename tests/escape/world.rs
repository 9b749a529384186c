//! What surrounds a jail in a test: a workspace with secrets, a home, a state directory, and things
//! of the host that nobody inside may reach.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use tempfile::TempDir;

use crate::identity::Identity;
use crate::prisoner::{ARGUMENT, CANARY, KEY};
use crate::raw;
use crate::tools;

/// Everything around one jail; gone when dropped.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) identity: Identity,
    directory: TempDir,
    /// A server of the host, on every address.
    server: TcpListener,
    /// What `{name}` stands for in a probe's words.
    words: BTreeMap<&'static str, String>,
    _planted: Planted,
}

/// Things of the host that a prisoner looks for; held so that they are there.
#[derive(Debug)]
struct Planted {
    _temporary: tempfile::NamedTempFile,
    _abstract: UnixListener,
    /// Inherited by whatever is started.
    _descriptor: File,
    _shared_memory: SharedMemory,
    _of_root: Option<OfRoot>,
}

/// What only root can plant.
#[derive(Debug)]
struct OfRoot {
    _run: TempDir,
    _socket: UnixListener,
    _shown: TempDir,
}

#[derive(Debug)]
struct SharedMemory(i32);

impl Drop for SharedMemory {
    fn drop(&mut self) {
        drop(raw::remove_shared_memory(self.0));
    }
}

/// On which side of the wall a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Inside,
    Outside,
}

impl World {
    /// A world in which the files that `words` name are there.
    pub(crate) fn set(identity: Identity, words: &[Vec<String>]) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("kvro-escape-").tempdir_in(tools::SCRATCH)?;
        let at = |name: &str| directory.path().join(name);
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        for name in ["work", "spare", "home", "home/.ssh", "state"] {
            fs::create_dir(at(name))?;
        }
        fs::set_permissions(at("state"), Permissions::from_mode(0o700))?;
        fs::write(at("home/.ssh/id_test"), CANARY)?;
        for place in ["work", "spare"] {
            furnish(&at(place), words)?;
        }
        give_all(identity, directory.path())?;
        // Root's own, shown by nothing: the agent's directories are listed one by one.
        fs::write(at("outside"), CANARY)?;
        let server = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        server.set_nonblocking(true)?;
        let mut found = BTreeMap::from([
            ("dir", directory.path().display().to_string()),
            ("port", server.local_addr()?.port().to_string()),
        ]);
        let planted = plant(directory.path(), &mut found)?;
        Ok(Self { identity, directory, server, words: found, _planted: planted })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The directory that holds all of it.
    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The workspace.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub(crate) fn port(&self) -> &str {
        self.words.get("port").map_or("", String::as_str)
    }

    /// How many connections the host's server got since it was last asked.
    pub(crate) fn connections(&self) -> usize {
        std::iter::from_fn(|| self.server.accept().ok()).count()
    }

    /// `word` with the places of the world put in; `{here}` is where the prisoner works.
    pub(crate) fn resolve(&self, word: &str, side: Side) -> String {
        let here = match side {
            Side::Inside => self.work(),
            Side::Outside => self.path("spare"),
        };
        let mut word = word.replace("{here}", &here.display().to_string());
        for (name, value) in &self.words {
            word = word.replace(&format!("{{{name}}}"), value);
        }
        word
    }

    /// A command that runs `prisoner` in a jail.
    pub(crate) fn jail(&self, options: &[&str], prisoner: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.jail_for(options)?;
        command.arg("--").arg(tools::probe()).arg(ARGUMENT).args(prisoner);
        Ok(command)
    }

    /// A command that runs the program in the workspace, up to its own options.
    pub(crate) fn jail_for(&self, options: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.command(self.identity)?;
        command
            .arg(tools::program())
            .current_dir(self.work())
            .arg("--quiet")
            .args(["--policy", "builtin:default", "--profile", "generic"])
            .arg("--read")
            .arg(tools::place())
            .args(options);
        Ok(command)
    }

    /// A command that runs `prisoner` as `identity` outside of any jail.
    pub(crate) fn outside(
        &self,
        identity: Identity,
        prisoner: &[&str],
    ) -> anyhow::Result<Command> {
        let mut command = self.command(identity)?;
        command
            .arg(tools::probe())
            .current_dir(self.path("spare"))
            .arg(ARGUMENT)
            .args(prisoner);
        Ok(command)
    }

    /// What starts either: with a key in its keyring and an environment of this world.
    fn command(&self, identity: Identity) -> anyhow::Result<Command> {
        let mut command = identity.command(tools::probe())?;
        command
            .args([ARGUMENT, "with-key", KEY])
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.state())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8");
        Ok(command)
    }
}

/// Makes the files and directories that `words` name by relative paths.
fn furnish(place: &Path, words: &[Vec<String>]) -> anyhow::Result<()> {
    const FILES: [&str; 5] = [".env", "main.tf", "config", "pre-commit", "plain.txt"];
    for word in words.iter().flatten().map(Path::new) {
        let is_fixture = ["closed", "infra", ".git", "open"].iter().any(|top| word.starts_with(top));
        let Some(parent) = word.parent().filter(|_| is_fixture) else { continue };
        fs::create_dir_all(place.join(parent))?;
        if word.file_name().is_some_and(|name| FILES.iter().any(|file| name == *file)) {
            fs::write(place.join(word), format!("{CANARY}\n"))?;
        }
    }
    let secret = place.join("closed/alias/.env");
    if secret.exists() {
        // A second name of a secret file, from before.
        fs::hard_link(secret, place.join("open/second/name"))?;
    }
    Ok(())
}

/// Makes everything at and below `path` `identity`'s own.
fn give_all(identity: Identity, path: &Path) -> anyhow::Result<()> {
    identity.give(path)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give_all(identity, &entry?.path())?;
        }
    }
    Ok(())
}

fn plant(place: &Path, words: &mut BTreeMap<&'static str, String>) -> anyhow::Result<Planted> {
    let temporary = tempfile::Builder::new().prefix("kvro-escape-").tempfile_in("/tmp")?;
    fs::write(temporary.path(), CANARY)?;
    fs::set_permissions(temporary.path(), Permissions::from_mode(0o644))?;
    words.insert("temporary", temporary.path().display().to_string());

    let name = format!("kvro-escape-{}", place.display());
    let address = SocketAddr::from_abstract_name(&name)?;
    let unseen = UnixListener::bind_addr(&address).context("no abstract socket")?;
    words.insert("abstract", name);

    let descriptor = File::open(place.join("outside"))?;
    fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;

    // The directory's inode is a number that no other world has.
    let key = i32::try_from(fs::metadata(place)?.ino() & 0x7fff_ffff)?.max(1);
    let shared = raw::shared_memory(key, libc::IPC_CREAT | 0o666)?;
    words.insert("shared-memory", key.to_string());

    let of_root = if Identity::available().contains(&Identity::Root) {
        Some(plant_as_root(words)?)
    } else {
        None
    };
    Ok(Planted {
        _temporary: temporary,
        _abstract: unseen,
        _descriptor: descriptor,
        _shared_memory: SharedMemory(shared),
        _of_root: of_root,
    })
}

fn plant_as_root(words: &mut BTreeMap<&'static str, String>) -> anyhow::Result<OfRoot> {
    let open_to_all = Permissions::from_mode(0o755);
    let in_place = |place: &str| tempfile::Builder::new().prefix("kvro-escape-").tempdir_in(place);
    let run = in_place("/run")?;
    fs::set_permissions(run.path(), open_to_all.clone())?;
    let socket = run.path().join("daemon.sock");
    let listener = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
    words.insert("socket", socket.display().to_string());

    let shown = in_place("/usr/local/share")?;
    fs::set_permissions(shown.path(), open_to_all)?;
    let secret = shown.path().join("secret");
    fs::write(&secret, CANARY)?;
    fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
    words.insert("for-root", secret.display().to_string());

    // A file that says that whoever runs it is root.
    let set_uid = shown.path().join("set-uid");
    fs::copy(tools::probe(), &set_uid)?;
    fs::set_permissions(&set_uid, Permissions::from_mode(0o4755))?;
    words.insert("set-uid", set_uid.display().to_string());
    Ok(OfRoot { _run: run, _socket: listener, _shown: shown })
}
