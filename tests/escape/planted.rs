//! Things of the host that a prisoner looks for.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use anyhow::Context as _;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use tempfile::TempDir;

use crate::copied::copy_program;
use crate::identity::Identity;
use crate::prisoner::CANARY;
use crate::raw;
use crate::tools;

/// Held so that it is there.
#[derive(Debug)]
pub(crate) struct Planted {
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

impl Planted {
    /// Plants it for the world in `place`, and says in `words` where.
    pub(crate) fn plant(
        place: &Path,
        words: &mut BTreeMap<&'static str, String>,
    ) -> anyhow::Result<Self> {
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
        Ok(Self {
            _temporary: temporary,
            _abstract: unseen,
            _descriptor: descriptor,
            _shared_memory: SharedMemory(shared),
            _of_root: of_root,
        })
    }
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
    copy_program(&tools::probe(), &set_uid)?;
    fs::set_permissions(&set_uid, Permissions::from_mode(0o4755))?;
    words.insert("set-uid", set_uid.display().to_string());
    Ok(OfRoot { _run: run, _socket: listener, _shown: shown })
}
