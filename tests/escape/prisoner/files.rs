//! Probes of files: each tries one way to read, change, replace or alias a path.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::libc;
use nix::sys::stat::{Mode, SFlag, mknod, utimes};
use nix::sys::time::{TimeVal, TimeValLike as _};
use nix::unistd::{linkat, truncate};

use super::{number, ok};
use crate::raw;

/// What the fixture's secret files hold.
pub(crate) const CANARY: &str = "KVRO_CANARY_41d7";

pub(super) fn perform(words: &[&str]) -> Option<io::Result<String>> {
    let done = match *words {
        ["read", path] => return Some(File::open(path).and_then(kind_of)),
        ["read-without-waiting", path] => {
            let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
            return Some(open.and_then(kind_of));
        }
        ["read-below", directory, way, name] => return Some(read_below(directory, way, name)),
        ["write-below", directory, way, name] => write_below(directory, way, name),
        ["append", path] => {
            OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(b"x"))
        }
        ["open-to-write", path] => write(path),
        ["open-to-truncate", path] => {
            OpenOptions::new().write(true).truncate(true).open(path).map(drop)
        }
        ["truncate", path] => truncate(path, 0).map_err(io::Error::from),
        ["map", path] => map(path),
        ["chmod", path] => fs::set_permissions(path, Permissions::from_mode(0o777)),
        ["touch", path] => {
            utimes(path, &TimeVal::seconds(1), &TimeVal::seconds(1)).map_err(io::Error::from)
        }
        ["set-attribute", path] => raw::set_attribute(Path::new(path)),
        ["unlink", path] => fs::remove_file(path),
        ["remove-tree", path] => fs::remove_dir_all(path),
        ["create", path] => OpenOptions::new().write(true).create_new(true).open(path).map(drop),
        ["mkdir", path] => fs::create_dir(path),
        ["symlink", to, at] => std::os::unix::fs::symlink(to, at),
        ["rename", from, to] => fs::rename(from, to),
        ["rename-new", from, to] => rename(from, to, RenameFlags::RENAME_NOREPLACE),
        ["exchange", from, to] => rename(from, to, RenameFlags::RENAME_EXCHANGE),
        ["rename-and-rebuild", directory, name] => rename_and_rebuild(directory, name),
        ["link", from, to] => fs::hard_link(from, to),
        ["link-descriptor", from, to] => link_descriptor(from, to),
        ["make-device", path] => {
            mknod(path, SFlag::S_IFCHR, Mode::S_IRUSR, libc::makedev(1, 1)).map_err(io::Error::from)
        }
        ["make-pipe", path] => nix::unistd::mkfifo(path, Mode::S_IRUSR).map_err(io::Error::from),
        ["list", path] => return Some(list(path)),
        ["writable-below", ref rest @ ..] => return Some(writable_below(rest)),
        ["not-for-others", ref rest @ ..] => return Some(not_for_others(rest)),
        ["sockets", ref rest @ ..] => return Some(sockets(rest)),
        ["read-by-link", to, at] => {
            return Some(by_link(to, at).and_then(File::open).and_then(kind_of));
        }
        ["read-by-links", to, at] => {
            return Some(by_links(to, at).and_then(File::open).and_then(kind_of));
        }
        ["read-by-link-below", to, at, path] => return Some(below_link(to, at, path)),
        ["write-by-link", to, at] => by_link(to, at).and_then(write),
        ["reopen-to-write", path] => reopen_to_write(path),
        ["list-processes"] => return Some(list_processes()),
        ["writable-kernel-files"] => return Some(writable_kernel_files()),
        _ => return None,
    };
    Some(done.map(|()| ok()))
}

/// What the beginning of `file` is: the canary, our decoy's text, or something else.
fn kind_of(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(4096).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let kind = if text.contains(CANARY) {
        "canary"
    } else if text.contains("hidden from the jail") {
        "decoy"
    } else if text.is_empty() {
        "empty"
    } else {
        "other"
    };
    Ok(kind.to_owned())
}

/// `name` below an open `directory`, by the name that `way` gives the descriptor.
fn below(directory: &str, way: &str, name: &str) -> io::Result<(File, PathBuf)> {
    let directory = File::open(directory)?;
    let path = Path::new(way).join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, path))
}

fn read_below(directory: &str, way: &str, name: &str) -> io::Result<String> {
    let (_open, path) = below(directory, way, name)?;
    File::open(path).and_then(kind_of)
}

fn write_below(directory: &str, way: &str, name: &str) -> io::Result<()> {
    let (_open, path) = below(directory, way, name)?;
    write(path)
}

/// Opens for writing; writes nothing.
fn write(path: impl AsRef<Path>) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

/// A new link at `at` that leads to `to`.
fn by_link<'p>(to: &str, at: &'p str) -> io::Result<&'p str> {
    if let Some(parent) = Path::new(at).parent() {
        fs::create_dir_all(parent)?;
    }
    std::os::unix::fs::symlink(to, at)?;
    Ok(at)
}

fn by_links(to: &str, at: &str) -> io::Result<String> {
    by_link(to, at)?;
    let mut last = at.to_owned();
    for _ in 0..4 {
        let next = format!("{last}+");
        // A relative link, from its own directory.
        let name = Path::new(&last).file_name().ok_or(io::ErrorKind::InvalidInput)?;
        std::os::unix::fs::symlink(name, &next)?;
        last = next;
    }
    Ok(last)
}

/// Reads `path` below a new link that leads to a directory.
fn below_link(to: &str, at: &str, path: &str) -> io::Result<String> {
    let link = by_link(to, at)?;
    File::open(format!("{link}{path}")).and_then(kind_of)
}

/// Opens a file for reading and by its descriptor once more.
fn reopen_to_write(path: &str) -> io::Result<()> {
    let open = File::open(path)?;
    write(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

fn list_processes() -> io::Result<String> {
    const FEW: usize = 8;
    let is_process =
        |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let entries = fs::read_dir("/proc")?.flatten();
    let count = entries.filter(|entry| is_process(&entry.file_name())).count();
    Ok(if count <= FEW { "few" } else { "many" }.to_owned())
}

/// Files directly in `/proc` and its directories that are no process's.
fn writable_kernel_files() -> io::Result<String> {
    let is_process = |name: &str| name.parse::<u32>().is_ok();
    let mut roots = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links to this process, and what has a row of its own.
        let is_link = entry.file_type()?.is_symlink();
        if !is_process(&name) && !is_link && name != "sys" {
            roots.push(format!("/proc/{name}"));
        }
    }
    let roots: Vec<&str> = ["10"].into_iter().chain(roots.iter().map(String::as_str)).collect();
    writable_below(&roots)
}

fn map(path: &str) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    raw::write_through_mapping(file.as_fd())
}

fn rename(from: &str, to: &str, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)?)
}

/// Moves `directory` away, mask and all, and makes `name` in a new one at its place.
fn rename_and_rebuild(directory: &str, name: &str) -> io::Result<()> {
    fs::rename(directory, format!("{directory}-away"))?;
    fs::create_dir(directory)?;
    fs::write(Path::new(directory).join(name), "x")
}

/// Links the file that a descriptor without any right stands for.
fn link_descriptor(from: &str, to: &str) -> io::Result<()> {
    let file = openat(AT_FDCWD, from, OFlag::O_PATH, Mode::empty())?;
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(AT_FDCWD, by_number.as_str(), AT_FDCWD, to, AtFlags::AT_SYMLINK_FOLLOW)?)
}

fn list(path: &str) -> io::Result<String> {
    let names: io::Result<Vec<String>> = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().escape_debug().to_string()))
        .collect();
    let mut names = names?;
    names.sort();
    Ok(names.join(" "))
}

/// Walks what is below `roots` and calls `look` for everything that is no directory.
fn walk(roots: &[&str], mut look: impl FnMut(&Path, &fs::Metadata)) {
    let mut open: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
    while let Some(path) = open.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if !metadata.is_dir() {
            look(&path, &metadata);
        } else if let Ok(entries) = fs::read_dir(&path) {
            open.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
}

/// The files below `roots` that open for writing; nothing is written.
///
/// The first word is how many files there must be at least for the answer to mean anything.
fn writable_below(words: &[&str]) -> io::Result<String> {
    let (least, roots) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (least, mut tried, mut writable): (u32, u32, Vec<String>) = (number(least)?, 0, Vec::new());
    walk(roots, |path, metadata| {
        if metadata.is_file() {
            tried += 1;
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            if OpenOptions::new().write(true).custom_flags(flags).open(path).is_ok() {
                writable.push(path.display().to_string());
            }
        }
    });
    found(least, tried, &writable)
}

/// Files of others that open for reading though their mode keeps others out.
fn not_for_others(words: &[&str]) -> io::Result<String> {
    const FOR_OTHERS: u32 = 0o004;
    let (least, roots) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let (least, mut tried, mut readable): (u32, u32, Vec<String>) = (number(least)?, 0, Vec::new());
    let own = nix::unistd::geteuid().as_raw();
    walk(roots, |path, metadata| {
        tried += 1;
        let is_closed = metadata.is_file() && metadata.mode() & FOR_OTHERS == 0;
        if is_closed && metadata.uid() != own && File::open(path).is_ok() {
            readable.push(path.display().to_string());
        }
    });
    found(least, tried, &readable)
}

fn sockets(roots: &[&str]) -> io::Result<String> {
    let mut found = Vec::new();
    walk(roots, |path, metadata| {
        if metadata.file_type().is_socket() {
            found.push(path.display().to_string());
        }
    });
    Ok(if found.is_empty() { "none".to_owned() } else { found.join(" ") })
}

fn found(least: u32, tried: u32, found: &[String]) -> io::Result<String> {
    if tried < least {
        return Ok(format!("only {tried} files"));
    }
    Ok(if found.is_empty() { "none".to_owned() } else { found.join(" ") })
}
