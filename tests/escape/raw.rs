//! System calls as they are: what no library offers, because nobody should want it.
//!
//! The one place of the suite with unsafe code. Nothing here judges.
#![expect(unsafe_code, reason = "a probe performs the very call that is judged")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction, signal};

/// On which side of a fork this is.
pub(crate) enum Side {
    Child,
    Parent { child: i32 },
}

/// Forks by `clone(2)` with these flags; a probe has one thread.
pub(crate) fn clone(flags: i32) -> io::Result<Side> {
    let flags = i64::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and a stack the call returns twice as fork does, and this process
    // has one thread.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    Ok(match i32::try_from(pid).map_err(io::Error::other)? {
        0 => Side::Child,
        child => Side::Parent { child },
    })
}

pub(crate) fn fork() -> io::Result<Side> {
    clone(0)
}

/// Ignores `ignored` from now on.
pub(crate) fn ignore(ignored: Signal) -> io::Result<()> {
    // SAFETY: no code of ours runs on the signal.
    unsafe { signal(ignored, SigHandler::SigIgn) }?;
    Ok(())
}

/// Hears `heard` from now on, which interrupts calls and does nothing else.
pub(crate) fn hear(heard: Signal) -> io::Result<()> {
    extern "C" fn nothing(_signal: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(heard, &action) }?;
    Ok(())
}

/// Lets everybody else's work come before this thread's and that of the threads it starts.
pub(crate) fn give_way() -> io::Result<()> {
    const LAST: i32 = 19;
    // SAFETY: the call takes plain numbers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LAST) }).map(drop)
}

/// Has somebody wait for this process's system calls, as another sandbox does: whoever is started
/// from here on inherits that, and the descriptor that it lasts with.
pub(crate) fn be_judged() -> io::Result<()> {
    const RETURN: u16 = 0x06;
    let all = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let mut filter = [all];
    let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
    nix::sys::prctl::set_no_new_privs()?;
    // SAFETY: `program` points to one instruction, which outlives the call and is copied by it.
    let listener = check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            std::ptr::from_ref(&program),
        )
    })?;
    let listener = i32::try_from(listener).map_err(io::Error::other)?;
    // SAFETY: the call takes plain numbers; the descriptor is meant to outlive the exec.
    check(unsafe { libc::fcntl(listener, libc::F_SETFD, 0) }).map(drop)
}

/// Ends this process at once.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` reads no memory and does not return.
    unsafe { libc::_exit(code) }
}

/// Performs the call `number` with plain numbers as arguments.
pub(super) fn call(number: i64, args: [u64; 6]) -> io::Result<i64> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: only for a child whose own filter stops the call before it is performed, and which
    // does nothing but exit next.
    check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// Performs `getpid` through the entry point of 32-bit programs.
#[cfg(target_arch = "x86_64")]
pub(super) fn call_32_bit() -> io::Result<i64> {
    const GETPID: u32 = 20;
    let mut answer = GETPID;
    // SAFETY: getpid takes no argument and touches no memory; the registers that the entry point
    // may clear are named.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") answer,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    match answer.cast_signed() {
        errno @ ..=-1 => Err(io::Error::from_raw_os_error(-errno)),
        pid => Ok(pid.into()),
    }
}

/// Installs a filter of this process's own: whoever traces it is asked about the call `number` of
/// the architecture `arch`, unless another filter has refused it before.
pub(super) fn ask_tracer_about(arch: u32, number: u32) -> io::Result<()> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 4), // seccomp_data.arch
        step(EQUAL, 0, 3, arch),
        step(LOAD, 0, 0, 0), // seccomp_data.nr
        step(EQUAL, 0, 1, number),
        step(RETURN, 0, 0, libc::SECCOMP_RET_TRACE),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    nix::sys::prctl::set_no_new_privs()?;
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `program` points into `filter`; both outlive the call, which copies them.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) })?;
    Ok(())
}

/// Types one byte into the controlling terminal.
pub(crate) fn type_into(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call reads one byte of a static string.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, c"x".as_ptr()) })?;
    Ok(())
}

/// Makes `terminal` the controlling terminal of this session.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) })?;
    Ok(())
}

/// Connects `socket` to an address that lies where this process has no memory.
pub(crate) fn connect_to_nowhere(socket: BorrowedFd<'_>) -> io::Result<()> {
    let nowhere = std::ptr::without_provenance::<libc::sockaddr>(8);
    // SAFETY: the kernel checks the address, which only it dereferences.
    check(unsafe { libc::connect(socket.as_raw_fd(), nowhere, 16) })?;
    Ok(())
}

/// Writes the first byte of `file` through a shared mapping.
pub(crate) fn write_through_mapping(file: BorrowedFd<'_>) -> io::Result<()> {
    let (protection, length) = (libc::PROT_READ | libc::PROT_WRITE, 1);
    let anywhere = std::ptr::null_mut();
    let (shared, fd) = (libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping where the kernel likes it.
    let mapped = unsafe { libc::mmap(anywhere, length, protection, shared, fd, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping was just made, is writable and a page long.
    unsafe { mapped.cast::<u8>().write_volatile(b'!') };
    // SAFETY: nothing refers to the mapping any more.
    check(unsafe { libc::munmap(mapped, length) })?;
    Ok(())
}

/// Maps a page that can be written and run, as compilers at run time do.
pub(crate) fn map_program_memory() -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel likes it.
    let mapped = unsafe { libc::mmap(anywhere, 1, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn set_attribute(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: three C strings that outlive the call.
    check(unsafe {
        libc::setxattr(path.as_ptr(), c"user.kvro".as_ptr(), c"x".as_ptr().cast(), 1, 0)
    })?;
    Ok(())
}

/// The extended attributes of `path` itself, in order.
pub(crate) fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    const ROOM: usize = 4096;
    let path = c_path(path)?;
    let mut names = [0_u8; ROOM];
    // SAFETY: the buffer has the size that is given and outlives the call.
    let len =
        check(unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), ROOM) } as i64)?;
    let names = &names[..usize::try_from(len).map_err(io::Error::other)?];
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut attributes = Vec::new();
    for name in names {
        let (named, mut value) = (CString::new(name)?, [0_u8; ROOM]);
        // SAFETY: as above; both strings outlive the call.
        let len = check(unsafe {
            libc::lgetxattr(path.as_ptr(), named.as_ptr(), value.as_mut_ptr().cast(), ROOM)
        } as i64)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        attributes.push((name.to_vec(), value[..len].to_vec()));
    }
    attributes.sort();
    Ok(attributes)
}

/// Joins a new session keyring and puts a key called `name` into it.
pub(crate) fn join_keyring_with(name: &CStr) -> io::Result<()> {
    const JOIN_SESSION_KEYRING: i32 = 1;
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for an anonymous keyring.
    check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, unnamed) })?;
    let (kind, payload) = (c"user".as_ptr(), c"x".as_ptr());
    // SAFETY: the three strings outlive the call, which copies them.
    check(unsafe {
        libc::syscall(libc::SYS_add_key, kind, name.as_ptr(), payload, 1, SESSION_KEYRING)
    })?;
    Ok(())
}

const SESSION_KEYRING: i32 = -3;

/// Looks for the key `name` in the session keyring.
pub(crate) fn find_key(name: &CStr) -> io::Result<()> {
    const SEARCH: i32 = 10;
    let (kind, name) = (c"user".as_ptr(), name.as_ptr());
    // SAFETY: the strings outlive the call.
    check(unsafe { libc::syscall(libc::SYS_keyctl, SEARCH, SESSION_KEYRING, kind, name, 0) })?;
    Ok(())
}

/// The System V shared memory `key`; made where it is missing if `flags` say so.
pub(crate) fn shared_memory(key: i32, flags: i32) -> io::Result<i32> {
    // SAFETY: no memory is passed.
    let id = check(unsafe { libc::shmget(key, 1, flags) })?;
    i32::try_from(id).map_err(io::Error::other)
}

pub(crate) fn remove_shared_memory(id: i32) -> io::Result<()> {
    // SAFETY: IPC_RMID ignores the buffer.
    check(unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) })?;
    Ok(())
}

/// A path in memory whose last part another thread exchanges while calls read it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SwappedPath {
    leading: [u8; 16],
    /// Changed at once, so that every call reads one name or the other.
    last: AtomicU64,
    end: u64,
}

impl SwappedPath {
    pub(crate) fn new(leading: [u8; 16], last: [u8; 8]) -> Self {
        Self { leading, last: AtomicU64::new(u64::from_ne_bytes(last)), end: 0 }
    }

    pub(crate) fn swap(&self, last: [u8; 8]) {
        self.last.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }

    fn text(&self) -> *const libc::c_char {
        std::ptr::from_ref(self).cast()
    }

    pub(crate) fn open(&self, flags: i32) -> io::Result<OwnedFd> {
        // SAFETY: the text lies within `self`, which outlives the call, and ends in `end`, which
        // nobody changes.
        let number = check(unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, self.text(), flags, 0o644)
        })?;
        let number = i32::try_from(number).map_err(io::Error::other)?;
        // SAFETY: the kernel just made this descriptor for us; nothing else can close it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    pub(crate) fn rename_to(&self, to: &CStr) -> io::Result<()> {
        // SAFETY: as in `open`; `to` outlives the call as well.
        check(unsafe {
            libc::syscall(
                libc::SYS_renameat,
                libc::AT_FDCWD,
                self.text(),
                libc::AT_FDCWD,
                to.as_ptr(),
            )
        })
        .map(drop)
    }

    pub(crate) fn exchange_with(&self, other: &CStr) -> io::Result<()> {
        // SAFETY: as in `rename_to`.
        check(unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                other.as_ptr(),
                libc::AT_FDCWD,
                self.text(),
                libc::RENAME_EXCHANGE,
            )
        })
        .map(drop)
    }

    /// `flags` are those of linkat(2).
    pub(crate) fn link_to(&self, to: &CStr, flags: i32) -> io::Result<()> {
        // SAFETY: as in `rename_to`.
        check(unsafe {
            libc::syscall(
                libc::SYS_linkat,
                libc::AT_FDCWD,
                self.text(),
                libc::AT_FDCWD,
                to.as_ptr(),
                flags,
            )
        })
        .map(drop)
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn check(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
