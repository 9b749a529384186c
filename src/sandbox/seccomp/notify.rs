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

/// Lets `connect` wait for the supervisor's verdict; returns where the questions arrive.
pub(crate) fn install_notifying() -> io::Result<OwnedFd> {
    let connect = u32::try_from(libc::SYS_connect).map_err(io::Error::other)?;
    let filter = [
        load(offset_of!(libc::seccomp_data, arch)),
        instruction(EQUAL, 0, 2, NATIVE),
        load(offset_of!(libc::seccomp_data, nr)),
        instruction(EQUAL, 1, 0, connect),
        instruction(RETURN, 0, 0, ALLOW),
        instruction(RETURN, 0, 0, NOTIFY),
    ];
    sys::install_with_listener(&filter)
}
