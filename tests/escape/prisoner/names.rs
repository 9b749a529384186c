//! Probes of names: making, removing and moving them in every way that a program may choose.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, openat, openat2};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::{Mode, SFlag, mknod, umask};
use nix::unistd::{Pid, linkat};

use super::files::CANARY;
use super::ok;
use crate::identity::new_command;
use crate::raw;

/// What a storm asks for, again and again.
#[rustfmt::skip]
pub(crate) const STORM: [(&str, &str); 15] = [
    ("create", ".env.new"), ("create", "infra/new.tf"), ("create", "open/.env.new"),
    ("link", ".env.new"), ("link", "infra/new.tf"), ("link", "open/.env.new"),
    ("remove", ".env"), ("remove", "infra/main.tf"), ("remove", "packages/api/.env"),
    ("rename", ".env.new"), ("rename", "infra/new.tf"), ("rename", "open/.env.new"),
    ("open", ".env"), ("open", "infra/main.tf"), ("open", "packages/api/.env"),
];

/// How often a storm asks for each.
pub(crate) const STORMED: u32 = 300;

/// Makes, moves and removes names while signals arrive all the time, as they do in a Go program.
fn names_under_signals() -> io::Result<()> {
    const TIMES: u32 = 200;
    raw::hear(Signal::SIGURG)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut own = SigSet::empty();
            own.add(Signal::SIGURG);
            let blocked = own.thread_block();
            while blocked.is_ok() && !is_over.load(Ordering::Relaxed) {
                kill(Pid::this(), Signal::SIGURG).ok();
            }
        });
        let done = (0..TIMES).try_for_each(|_| {
            fs::create_dir("signalled")?;
            File::create_new("signalled.txt")?;
            fs::rename("signalled.txt", "signalled.new")?;
            fs::remove_file("signalled.new")?;
            fs::remove_dir("signalled")
        });
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    let done = match *words {
        ["create-with", path, mode, mask] => masked(mask, || create_with(path, octal(mode)?)),
        ["mkdir-with", path, mode, mask] => masked(mask, || {
            let mode = Mode::from_bits_truncate(octal(mode)?);
            Ok(nix::unistd::mkdir(path, mode)?)
        }),
        ["mknod-with", path, mode, mask] => masked(mask, || {
            let mode = Mode::from_bits_truncate(octal(mode)?);
            Ok(mknod(path, SFlag::S_IFIFO, mode, 0)?)
        }),
        ["open", path, ref flags @ ..] => flagged(flags).and_then(|flags| {
            Ok(openat(AT_FDCWD, path, flags, Mode::from_bits_truncate(0o666)).map(drop)?)
        }),
        ["open-the-new-way", path, ref flags @ ..] => flagged(flags).and_then(|flags| {
            let how = OpenHow::new().flags(flags).mode(Mode::from_bits_truncate(0o640));
            Ok(openat2(AT_FDCWD, path, how).map(drop)?)
        }),
        ["create-below", directory, name] => File::open(directory).and_then(|directory| {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
            Ok(openat(&directory, name, flags, Mode::from_bits_truncate(0o666)).map(drop)?)
        }),
        ["create-below-a-descriptor", way, directory, name] => {
            File::open(directory).and_then(|directory| {
                let directory = Path::new(way).join(directory.as_raw_fd().to_string());
                File::create_new(directory.join(name)).map(drop)
            })
        }
        ["create-by-link", at, to] => std::os::unix::fs::symlink(to, at)
            .and_then(|()| OpenOptions::new().write(true).create(true).truncate(false).open(at))
            .map(drop),
        ["link-nameless", directory, to] => link_nameless(directory, to),
        ["bind", path] => UnixListener::bind(path).map(drop),
        ["serve", path] => serve(path),
        ["write", path, text] => fs::write(path, text),
        ["save", path, text] => save(path, text),
        ["rmdir", path] => fs::remove_dir(path),
        ["names-under-signals"] => names_under_signals(),
        ["text", path] => return Some(fs::read_to_string(path).map(|text| one_line(&text))),
        ["link-text", path] => {
            return Some(fs::read_link(path).map(|to| to.display().to_string()));
        }
        ["stat", path] => return Some(stat(path)),
        ["run", path] => return Some(run(path)),
        ["read-by-every-root", path] => return Some(read_by_every_root(path)),
        ["storm-of-names"] => return Some(storm()),
        _ => return None,
    };
    Some(done.map(|()| ok()))
}

/// Serves one caller at `path`, and is that caller.
fn serve(path: &str) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let mut caller = UnixStream::connect(path)?;
    listener.accept()?.0.write_all(b"served")?;
    let mut heard = String::new();
    caller.read_to_string(&mut heard)?;
    if heard == "served" { Ok(()) } else { Err(io::Error::other("another served")) }
}

fn octal(word: &str) -> io::Result<u32> {
    u32::from_str_radix(word, 8).map_err(io::Error::other)
}

/// Does `make` with a umask of its own.
fn masked(mask: &str, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let before = umask(Mode::from_bits_truncate(octal(mask)?));
    let made = make();
    umask(before);
    made
}

fn create_with(path: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(b"made")
}

/// Flags of open(2) by their names.
fn flagged(names: &[&str]) -> io::Result<OFlag> {
    let flags = names.iter().map(|name| OFlag::from_name(&format!("O_{}", name.to_uppercase())));
    flags.collect::<Option<OFlag>>().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Saves as an editor does: what is written lies under another name until it is complete.
fn save(path: &str, text: &str) -> io::Result<()> {
    let passing = format!("{path}.new");
    let mut file = File::create(&passing)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(passing, path)
}

/// Gives a name to a file that was made without one.
fn link_nameless(directory: &str, to: &str) -> io::Result<()> {
    let flags = OFlag::O_TMPFILE | OFlag::O_RDWR;
    let file = openat(AT_FDCWD, directory, flags, Mode::from_bits_truncate(0o600))?;
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(AT_FDCWD, by_number.as_str(), AT_FDCWD, to, AtFlags::AT_SYMLINK_FOLLOW)?)
}

fn one_line(text: &str) -> String {
    text.escape_debug().to_string()
}

/// Kind, mode, and for all but directories the count of names.
fn stat(path: &str) -> io::Result<String> {
    let metadata = fs::symlink_metadata(path)?;
    let (kind, mode) = (metadata.file_type(), metadata.mode() & 0o7777);
    let kind = if kind.is_dir() {
        return Ok(format!("directory {mode:o}"));
    } else if kind.is_symlink() {
        "link"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_file() {
        "file"
    } else {
        "other"
    };
    Ok(format!("{kind} {mode:o} {}", metadata.nlink()))
}

fn run(path: &str) -> io::Result<String> {
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    let output = new_command(OsStr::new(path)).output()?;
    Ok(one_line(&String::from_utf8_lossy(&output.stdout)))
}

/// Whether `path` has the canary below any process's root or directory.
fn read_by_every_root(path: &str) -> io::Result<String> {
    let mut tried = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        for way in ["root", "cwd/../../../../../../../.."] {
            let path = entry.path().join(way).join(path.trim_start_matches('/'));
            let Ok(text) = fs::read_to_string(path) else { continue };
            tried += 1;
            if text.contains(CANARY) {
                return Ok("canary".to_owned());
            }
        }
    }
    Ok(if tried == 0 { "nothing" } else { "no canary" }.to_owned())
}

/// Asks [`STORMED`] times for each of what is closed; says how often that was refused.
fn storm() -> io::Result<String> {
    let mut refused = 0_u32;
    for _ in 0..STORMED {
        for (verb, path) in STORM {
            let done = match verb {
                "create" => File::create(path).map(drop),
                "link" => fs::hard_link("open/plain.txt", path),
                "remove" => fs::remove_file(path),
                "open" => OpenOptions::new().append(true).open(path).map(drop),
                _ => fs::rename("open/plain.txt", path),
            };
            let is_refusal = |error: io::Error| {
                let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
                kinds.contains(&error.kind())
            };
            if done.is_err_and(is_refusal) {
                refused += 1;
            }
        }
    }
    Ok(refused.to_string())
}
