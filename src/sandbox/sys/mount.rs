//! The mount interface of Linux 5.2 and later: trees as descriptors (`open_tree(2)`,
//! `move_mount(2)`, `mount_setattr(2)`, `fsopen(2)`).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::{check, owned};

// From include/uapi/linux/mount.h and fcntl.h; libc lacks some of them.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const AT_EMPTY_PATH: libc::c_uint = libc::AT_EMPTY_PATH as libc::c_uint;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const MOVE_MOUNT_BENEATH: libc::c_uint = 0x200;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;
const MOUNT_ATTR_NOEXEC: u64 = 0x8;
const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;

/// Whether a mount may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// What a mount forbids. `nosuid` is always set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountAttributes {
    pub(crate) access: Access,
    pub(crate) devices: Devices,
    pub(crate) programs: Programs,
}

/// Whether device nodes on a mount work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Devices {
    Closed,
    Open,
}

/// Whether programs on a mount may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Programs {
    Closed,
    Open,
}

impl MountAttributes {
    pub(crate) const READ_ONLY: Self =
        Self { access: Access::ReadOnly, devices: Devices::Closed, programs: Programs::Open };
    pub(crate) const READ_WRITE: Self = Self { access: Access::ReadWrite, ..Self::READ_ONLY };
    pub(crate) const DEVICE: Self =
        Self { access: Access::ReadWrite, devices: Devices::Open, programs: Programs::Closed };
    pub(crate) const DATA: Self = Self { programs: Programs::Closed, ..Self::READ_WRITE };

    fn bits(self) -> u64 {
        let mut bits = MOUNT_ATTR_NOSUID;
        if self.access == Access::ReadOnly {
            bits |= MOUNT_ATTR_RDONLY;
        }
        if self.devices == Devices::Closed {
            bits |= MOUNT_ATTR_NODEV;
        }
        if self.programs == Programs::Closed {
            bits |= MOUNT_ATTR_NOEXEC;
        }
        bits
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn open_tree_with(dir: BorrowedFd<'_>, path: &CStr, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: `path` is a C string that outlives the call; `dir` is borrowed for it.
    let raw = check(unsafe {
        libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), path.as_ptr(), flags)
    })?;
    owned(raw)
}

/// Copies the mounts at and below `path` into a detached tree.
pub(crate) fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
    open_tree_with(here(), &c_path(path)?, flags)
}

/// Copies the single mount that `file` lies on, rooted at `file`, into a detached tree.
pub(crate) fn open_tree(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE;
    open_tree_with(file, c"", flags)
}

/// The file or directory at `path` as a place to mount on.
pub(crate) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}

fn here() -> BorrowedFd<'static> {
    // SAFETY: AT_FDCWD is not a descriptor but a name that every `*at` call knows; it never closes.
    unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) }
}

/// The argument of `mount_setattr(2)`.
#[repr(C)]
#[derive(Default)]
struct RawMountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

fn mount_setattr(tree: BorrowedFd<'_>, reach: libc::c_uint, attr: &RawMountAttr) -> io::Result<()> {
    let flags = AT_EMPTY_PATH | reach;
    // SAFETY: `attr` has the kernel's layout and size, and is only read during the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<RawMountAttr>(),
        )
    })?;
    Ok(())
}

/// Sets what every mount of `tree` forbids; nothing that was forbidden is allowed again.
pub(crate) fn set_attributes(tree: BorrowedFd<'_>, attributes: MountAttributes) -> io::Result<()> {
    let attr = RawMountAttr { set: attributes.bits(), ..RawMountAttr::default() };
    mount_setattr(tree, AT_RECURSIVE, &attr)
}

/// As [`set_attributes`], for the one mount at `mount` and none below it.
pub(crate) fn set_own_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttributes,
) -> io::Result<()> {
    let attr = RawMountAttr { set: attributes.bits(), ..RawMountAttr::default() };
    mount_setattr(mount, 0, &attr)
}

/// Maps the owners of every file in the detached `tree` by the user namespace `users`.
pub(crate) fn idmap(tree: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let userns = u64::try_from(users.as_raw_fd()).map_err(io::Error::other)?;
    let attr = RawMountAttr { set: MOUNT_ATTR_IDMAP, userns, ..RawMountAttr::default() };
    mount_setattr(tree, AT_RECURSIVE, &attr)
}

/// Puts the detached `tree` over `target`, a directory or file descriptor.
pub(crate) fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    move_mount(tree, target, 0)
}

/// Puts the detached `tree` under the mount whose root `top` is: it shows when that is taken off.
///
/// `EINVAL` on kernels before Linux 6.5, and when `top` is not the root of a mount.
pub(crate) fn attach_beneath(tree: BorrowedFd<'_>, top: BorrowedFd<'_>) -> io::Result<()> {
    move_mount(tree, top, MOVE_MOUNT_BENEATH)
}

fn move_mount(tree: BorrowedFd<'_>, target: BorrowedFd<'_>, how: libc::c_uint) -> io::Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH | how;
    // SAFETY: both paths are static empty strings; the descriptors are borrowed for the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            flags,
        )
    })?;
    Ok(())
}

fn configure(
    fs: BorrowedFd<'_>,
    command: libc::c_uint,
    key: Option<&CStr>,
    value: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: key and value are C strings that outlive the call, or null where the command has none.
    check(unsafe {
        libc::syscall(libc::SYS_fsconfig, fs.as_raw_fd(), command, pointer(key), pointer(value), 0)
    })?;
    Ok(())
}

/// Makes a new filesystem of type `kind` as a detached tree.
///
/// An option with an empty value is set as a flag.
pub(crate) fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: MountAttributes,
) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is a C string that outlives the call.
    let fs = check(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) })?;
    let fs = owned(fs)?;
    for &(key, value) in options {
        if value.is_empty() {
            configure(fs.as_fd(), FSCONFIG_SET_FLAG, Some(key), None)?;
        } else {
            configure(fs.as_fd(), FSCONFIG_SET_STRING, Some(key), Some(value))?;
        }
    }
    configure(fs.as_fd(), FSCONFIG_CMD_CREATE, None, None)?;
    let bits = attributes.bits();
    // SAFETY: no memory is passed; `fs` is borrowed for the call.
    let tree =
        check(unsafe { libc::syscall(libc::SYS_fsmount, fs.as_raw_fd(), FSMOUNT_CLOEXEC, bits) })?;
    owned(tree)
}

/// Makes the working directory the root, with the old root on top of it.
///
/// `pivot_root(".", ".")` as described in pivot_root(2): the caller unmounts "." next.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: both arguments are static C strings.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    Ok(())
}
