//! System calls about names, read from their registers and the caller's memory.

use std::io;

use crate::observe::memory::{self, read_string};
use crate::sys::Notification;

/// What a call does to names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// Opens what is there to change it, or makes a file.
    Open {
        flags: i32,
        mode: u32,
    },
    /// Makes a name for the socket of this number.
    Bind {
        socket: i32,
    },
    MakeDir {
        mode: u32,
    },
    MakeNode {
        mode: u32,
    },
    /// The other string is what the link says.
    Symlink,
    Remove {
        is_dir: bool,
    },
    /// The other path is the new name.
    Rename {
        flags: u32,
    },
    /// The other path is the new name.
    Link {
        flags: i32,
    },
}

/// A path as a call names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The descriptor that it is relative to.
    pub(super) dir: i32,
    pub(super) text: Vec<u8>,
}

/// A call with its strings, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) naming: Naming,
    pub(super) path: Named,
    pub(super) other: Option<Named>,
}

/// Where a call has its arguments: the first path's descriptor and address, and the second's.
struct Shape {
    naming: Naming,
    path: (Option<usize>, usize),
    other: Option<(Option<usize>, usize)>,
}

impl Call {
    /// Reads the call of a notification; `None` for one that neither makes nor changes anything
    /// by a name.
    pub(super) fn read(asked: &Notification) -> io::Result<Option<Self>> {
        if asked.call == libc::SYS_bind {
            let naming = Naming::Bind { socket: low(asked.args[0]).cast_signed() };
            let path = memory::read_address(asked)?.and_then(path_of_socket);
            let path = path.map(|text| Named { dir: libc::AT_FDCWD, text });
            return Ok(path.map(|path| Self { naming, path, other: None }));
        }
        let Some(mut shape) = shape(asked.call, &asked.args) else { return Ok(None) };
        if asked.call == libc::SYS_openat2 {
            let Some((flags, mode)) = read_how(asked)? else { return Ok(None) };
            shape.naming = Naming::Open { flags, mode };
        }
        if let Naming::Open { flags, .. } = shape.naming
            && (flags & libc::O_PATH != 0 || !changes(flags) && flags & libc::O_CREAT == 0)
        {
            return Ok(None);
        }
        let named = |(dir, text): (Option<usize>, usize)| -> io::Result<Named> {
            let dir = dir.map_or(libc::AT_FDCWD, |at| low(asked.args[at]).cast_signed());
            Ok(Named { dir, text: read_string(asked.pid, asked.args[text])? })
        };
        let other = shape.other.map(named).transpose()?;
        Ok(Some(Self { naming: shape.naming, path: named(shape.path)?, other }))
    }
}

/// Whether an open with these flags may change what a file says.
pub(super) const fn changes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0
}

/// The path in a `sockaddr_un` (unix(7)); `None` for sockets that have no name among files.
fn path_of_socket(address: Vec<u8>) -> Option<Vec<u8>> {
    let (family, path) = address.split_first_chunk()?;
    let is_unix = i32::from(u16::from_ne_bytes(*family)) == libc::AF_UNIX;
    let path = path.split(|&byte| byte == 0).next()?;
    (is_unix && !path.is_empty()).then(|| path.to_owned())
}

/// The first fields of `struct open_how` (openat2(2)).
fn read_how(asked: &Notification) -> io::Result<Option<(i32, u32)>> {
    let [_, _, address, size, ..] = asked.args;
    if size < 24 {
        return Ok(None);
    }
    let mut how = [0_u8; 16];
    memory::read(asked.pid, address, &mut how)?;
    let (flags, mode) = how.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    Ok(Some((low(number(flags)).cast_signed(), low(number(mode)))))
}

/// The half of a register that a 32-bit argument is in.
fn low(register: u64) -> u32 {
    u32::try_from(register & u64::from(u32::MAX)).unwrap_or_default()
}

fn shape(call: i64, args: &[u64; 6]) -> Option<Shape> {
    let number = |at: usize| low(args[at]);
    let one = |naming, dir, path| Some(Shape { naming, path: (dir, path), other: None });
    let two = |naming, path, other| Some(Shape { naming, path, other: Some(other) });
    let open = |flags: u32, mode| Naming::Open { flags: flags.cast_signed(), mode };
    match call {
        libc::SYS_openat => one(open(number(2), number(3)), Some(0), 1),
        libc::SYS_openat2 => one(open(0, 0), Some(0), 1),
        libc::SYS_mkdirat => one(Naming::MakeDir { mode: number(2) }, Some(0), 1),
        libc::SYS_mknodat => one(Naming::MakeNode { mode: number(2) }, Some(0), 1),
        libc::SYS_unlinkat => {
            let is_dir = number(2) & libc::AT_REMOVEDIR.cast_unsigned() != 0;
            one(Naming::Remove { is_dir }, Some(0), 1)
        }
        libc::SYS_symlinkat => two(Naming::Symlink, (Some(1), 2), (None, 0)),
        libc::SYS_renameat => two(Naming::Rename { flags: 0 }, (Some(0), 1), (Some(2), 3)),
        libc::SYS_renameat2 => two(Naming::Rename { flags: number(4) }, (Some(0), 1), (Some(2), 3)),
        libc::SYS_linkat => {
            let flags = number(4).cast_signed();
            two(Naming::Link { flags }, (Some(0), 1), (Some(2), 3))
        }
        other => legacy(other, args),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn legacy(_call: i64, _args: &[u64; 6]) -> Option<Shape> {
    None
}

/// Calls that later architectures left out.
#[cfg(target_arch = "x86_64")]
fn legacy(call: i64, args: &[u64; 6]) -> Option<Shape> {
    let number = |at: usize| low(args[at]);
    let one = |naming| Some(Shape { naming, path: (None, 0), other: None });
    let two = |naming| Some(Shape { naming, path: (None, 0), other: Some((None, 1)) });
    match call {
        libc::SYS_open => one(Naming::Open { flags: number(1).cast_signed(), mode: number(2) }),
        libc::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            one(Naming::Open { flags, mode: number(1) })
        }
        libc::SYS_mkdir => one(Naming::MakeDir { mode: number(1) }),
        libc::SYS_mknod => one(Naming::MakeNode { mode: number(1) }),
        libc::SYS_rmdir => one(Naming::Remove { is_dir: true }),
        libc::SYS_unlink => one(Naming::Remove { is_dir: false }),
        libc::SYS_rename => two(Naming::Rename { flags: 0 }),
        libc::SYS_link => two(Naming::Link { flags: 0 }),
        libc::SYS_symlink => {
            Some(Shape { naming: Naming::Symlink, path: (None, 1), other: Some((None, 0)) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `call` does, and which of its arguments its strings are.
    fn read(call: i64, args: [u64; 6]) -> Option<(Naming, Strings)> {
        shape(call, &args).map(|shape| (shape.naming, (shape.path, shape.other)))
    }

    type Strings = ((Option<usize>, usize), Option<(Option<usize>, usize)>);

    #[test]
    fn every_call_has_its_arguments_where_its_manual_says() {
        let args = [10, 11, 12, 13, 14, 15];
        let cases = [
            (libc::SYS_openat, Naming::Open { flags: 12, mode: 13 }, ((Some(0), 1), None)),
            (libc::SYS_mkdirat, Naming::MakeDir { mode: 12 }, ((Some(0), 1), None)),
            (libc::SYS_mknodat, Naming::MakeNode { mode: 12 }, ((Some(0), 1), None)),
            (libc::SYS_unlinkat, Naming::Remove { is_dir: false }, ((Some(0), 1), None)),
            (libc::SYS_symlinkat, Naming::Symlink, ((Some(1), 2), Some((None, 0)))),
            (libc::SYS_renameat, Naming::Rename { flags: 0 }, ((Some(0), 1), Some((Some(2), 3)))),
            (libc::SYS_renameat2, Naming::Rename { flags: 14 }, ((Some(0), 1), Some((Some(2), 3)))),
            (libc::SYS_linkat, Naming::Link { flags: 14 }, ((Some(0), 1), Some((Some(2), 3)))),
        ];
        for (call, naming, strings) in cases {
            assert_eq!(read(call, args), Some((naming, strings)), "{call}");
        }
        assert_eq!(read(libc::SYS_read, args), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn older_calls_are_relative_to_the_working_directory() {
        let args = [10, 11, 12, 13, 14, 15];
        let create = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
        let cases = [
            (libc::SYS_open, Naming::Open { flags: 11, mode: 12 }, ((None, 0), None)),
            (libc::SYS_creat, Naming::Open { flags: create, mode: 11 }, ((None, 0), None)),
            (libc::SYS_mkdir, Naming::MakeDir { mode: 11 }, ((None, 0), None)),
            (libc::SYS_mknod, Naming::MakeNode { mode: 11 }, ((None, 0), None)),
            (libc::SYS_rmdir, Naming::Remove { is_dir: true }, ((None, 0), None)),
            (libc::SYS_unlink, Naming::Remove { is_dir: false }, ((None, 0), None)),
            (libc::SYS_rename, Naming::Rename { flags: 0 }, ((None, 0), Some((None, 1)))),
            (libc::SYS_link, Naming::Link { flags: 0 }, ((None, 0), Some((None, 1)))),
            (libc::SYS_symlink, Naming::Symlink, ((None, 1), Some((None, 0)))),
        ];
        for (call, naming, strings) in cases {
            assert_eq!(read(call, args), Some((naming, strings)), "{call}");
        }
    }

    #[test]
    fn only_a_socket_of_files_has_a_path() {
        let address = |family: i32, rest: &[u8]| {
            let family = u16::try_from(family).unwrap().to_ne_bytes();
            path_of_socket([&family, rest].concat())
        };
        assert_eq!(address(libc::AF_UNIX, b"dir/sock"), Some(b"dir/sock".to_vec()));
        assert_eq!(address(libc::AF_UNIX, b"sock\0left over"), Some(b"sock".to_vec()));
        assert_eq!(address(libc::AF_UNIX, b"\0abstract"), None);
        assert_eq!(address(libc::AF_UNIX, b""), None);
        assert_eq!(address(libc::AF_INET, b"\x1f\x90\x7f\0\0\x01"), None);
        assert_eq!(path_of_socket(vec![1]), None);
    }

    #[test]
    fn an_open_changes_a_file_by_its_flags() {
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
            assert!(changes(flags), "{flags}");
        }
        assert!(!changes(libc::O_RDONLY | libc::O_CREAT | libc::O_APPEND));
    }

    #[test]
    fn the_upper_half_of_a_register_means_nothing_to_a_32_bit_argument() {
        let dirty = |low: i32| u64::from(low.cast_unsigned()) | 0xdead_beef << 32;
        let args = [0, 1, dirty(libc::AT_REMOVEDIR), 0, 0, 0];
        let read = read(libc::SYS_unlinkat, args).map(|(naming, _)| naming);
        assert_eq!(read, Some(Naming::Remove { is_dir: true }));
        assert_eq!(low(dirty(libc::AT_FDCWD)).cast_signed(), libc::AT_FDCWD);
    }
}
