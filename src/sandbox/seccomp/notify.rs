//! The filters that seccompiler cannot express: entry points, unknown calls, and notifications.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;

use super::table::FIRST_UNKNOWN;
use crate::sys;

// From include/uapi/linux/bpf_common.h.
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const ANY_OF: u16 = 0x45;
pub(super) const RETURN: u16 = 0x06;

// From include/uapi/linux/audit.h.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the system call tables of this architecture are not known");

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

const fn refuse(errno: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

#[expect(clippy::cast_possible_truncation, reason = "a struct of 64 bytes")]
const fn load(offset: usize) -> libc::sock_filter {
    instruction(LOAD, 0, 0, offset as u32)
}

/// Refuses every call through a foreign entry point (32-bit and x32) and every call that is newer
/// than the table, so that nothing is allowed only because nobody knew it.
///
/// x32 calls carry bit 30, and thus lie above every known number.
pub(super) fn install_entry_points() -> io::Result<()> {
    // Defence::SeccompEntryPoints: kernel::agent_cannot_call_a_number_of_a_later_kernel.
    let filter = [
        load(offset_of!(libc::seccomp_data, arch)),
        instruction(EQUAL, 1, 0, NATIVE),
        instruction(RETURN, 0, 0, refuse(libc::ENOSYS)),
        load(offset_of!(libc::seccomp_data, nr)),
        instruction(AT_LEAST, 0, 1, FIRST_UNKNOWN),
        instruction(RETURN, 0, 0, refuse(libc::ENOSYS)),
        instruction(RETURN, 0, 0, ALLOW),
    ];
    sys::install_filter(&filter)
}

/// A call that waits for the supervisor's verdict.
#[derive(Debug, Clone, Copy)]
struct Waits {
    call: i64,
    /// The argument with the flags of open(2): only calls that may create something wait.
    creating: Option<usize>,
}

const fn waits(call: i64) -> Waits {
    Waits { call, creating: None }
}

/// Where a connection goes.
const CONNECTING: &[Waits] = &[waits(libc::SYS_connect)];

/// What names come and go by. `openat2` has its flags in memory, which a filter cannot read.
const NAMING: &[Waits] = &[
    Waits { call: libc::SYS_openat, creating: Some(2) },
    waits(libc::SYS_openat2),
    waits(libc::SYS_mkdirat),
    waits(libc::SYS_unlinkat),
    waits(libc::SYS_renameat2),
    waits(libc::SYS_linkat),
    waits(libc::SYS_symlinkat),
    waits(libc::SYS_mknodat),
    waits(libc::SYS_renameat),
    #[cfg(target_arch = "x86_64")]
    Waits { call: libc::SYS_open, creating: Some(1) },
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_creat),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_link),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_symlink),
    #[cfg(target_arch = "x86_64")]
    waits(libc::SYS_mknod),
];

/// Whether names are guarded, so that calls about names wait as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Guarded,
    Free,
}

/// Lets calls wait for the supervisor's verdict; returns where the questions arrive.
pub(crate) fn install_notifying(names: Names) -> io::Result<OwnedFd> {
    let naming = match names {
        Names::Guarded => NAMING,
        Names::Free => &[],
    };
    sys::install_with_listener(&notifying(CONNECTING.iter().chain(naming))?)
}

fn notifying<'w>(waits: impl Iterator<Item = &'w Waits>) -> io::Result<Vec<libc::sock_filter>> {
    let mut filter = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        instruction(EQUAL, 1, 0, NATIVE),
        instruction(RETURN, 0, 0, ALLOW),
    ];
    for &Waits { call, creating } in waits {
        let call = u32::try_from(call).map_err(io::Error::other)?;
        filter.push(load(offset_of!(libc::seccomp_data, nr)));
        match creating {
            None => {
                filter.push(instruction(EQUAL, 0, 1, call));
                filter.push(instruction(RETURN, 0, 0, NOTIFY));
            }
            Some(arg) => {
                filter.push(instruction(EQUAL, 0, 4, call));
                // The lower half, on machines that count from the little end.
                filter.push(load(offset_of!(libc::seccomp_data, args) + arg * size_of::<u64>()));
                filter.push(instruction(ANY_OF, 0, 1, libc::O_CREAT.cast_unsigned()));
                filter.push(instruction(RETURN, 0, 0, NOTIFY));
                filter.push(instruction(RETURN, 0, 0, ALLOW));
            }
        }
    }
    filter.push(instruction(RETURN, 0, 0, ALLOW));
    Ok(filter)
}
