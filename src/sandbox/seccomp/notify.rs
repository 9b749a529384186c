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

/// What the supervisor does with a call that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Judged: see `observe::connects`.
    Connect,
    /// Judged and done by the guard: see `observe::names`.
    Naming,
    /// Recorded: see `observe::processes`.
    Exec,
    /// What a program's C library calls before any code of the program's own, and not again: the
    /// first moment at which it can be looked at.
    Begin,
    /// The last such moment.
    Exit,
}

/// A call that waits for the supervisor.
#[derive(Debug, Clone, Copy)]
struct Waits {
    call: libc::c_long,
    family: Family,
    /// The argument with the flags of open(2): only calls that may create something wait.
    creating: Option<usize>,
}

const fn waits(call: libc::c_long, family: Family) -> Waits {
    Waits { call, family, creating: None }
}

const fn names(call: libc::c_long) -> Waits {
    waits(call, Family::Naming)
}

const fn creates(call: libc::c_long, flags: usize) -> Waits {
    Waits { call, family: Family::Naming, creating: Some(flags) }
}

/// The calls that wait in every jail.
const ALWAYS: &[Waits] = &[
    waits(libc::SYS_connect, Family::Connect),
    waits(libc::SYS_execve, Family::Exec),
    waits(libc::SYS_execveat, Family::Exec),
    waits(libc::SYS_set_tid_address, Family::Begin),
    waits(libc::SYS_exit_group, Family::Exit),
];

/// What names come and go by. `openat2` has its flags in memory, which a filter cannot read.
const NAMING: &[Waits] = &[
    creates(libc::SYS_openat, 2),
    names(libc::SYS_openat2),
    names(libc::SYS_mkdirat),
    names(libc::SYS_unlinkat),
    names(libc::SYS_renameat2),
    names(libc::SYS_linkat),
    names(libc::SYS_symlinkat),
    names(libc::SYS_mknodat),
    names(libc::SYS_renameat),
    #[cfg(target_arch = "x86_64")]
    creates(libc::SYS_open, 1),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_creat),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_link),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_symlink),
    #[cfg(target_arch = "x86_64")]
    names(libc::SYS_mknod),
];

impl Family {
    /// Whose the call number `call` is; `None` for one that no filter of ours notifies.
    pub(crate) fn of(call: libc::c_long) -> Option<Self> {
        let mut known = ALWAYS.iter().chain(NAMING);
        known.find(|waits| waits.call == call).map(|waits| waits.family)
    }
}

/// Whether names are guarded, so that calls about names wait as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Guarded,
    Free,
}

/// Lets some calls wait for the supervisor; returns where they arrive.
pub(crate) fn install_notifying(names: Names) -> io::Result<OwnedFd> {
    sys::install_with_listener(&notifying(names).map_err(io::Error::other)?)
}

fn notifying(names: Names) -> Result<Vec<libc::sock_filter>, std::num::TryFromIntError> {
    let naming = match names {
        Names::Guarded => NAMING,
        Names::Free => &[],
    };
    let mut filter = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        // The other filters refuse what comes by a foreign entry point.
        instruction(EQUAL, 1, 0, NATIVE),
        instruction(RETURN, 0, 0, ALLOW),
        load(offset_of!(libc::seccomp_data, nr)),
    ];
    for Waits { call, creating, .. } in ALWAYS.iter().chain(naming) {
        let call = u32::try_from(*call)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel does; every argument is `arg`.
    fn answer(names: Names, arch: u32, call: libc::c_long, arg: i32) -> u32 {
        let (filter, mut at, mut loaded) = (notifying(names).unwrap(), 0, 0);
        loop {
            let step = filter[at];
            at += 1;
            match step.code {
                LOAD if step.k == 4 => loaded = arch,
                LOAD if step.k == 0 => loaded = u32::try_from(call).unwrap(),
                LOAD => loaded = arg.cast_unsigned(),
                EQUAL if loaded == step.k => at += usize::from(step.jt),
                ANY_OF if loaded & step.k != 0 => at += usize::from(step.jt),
                EQUAL | ANY_OF => at += usize::from(step.jf),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn every_notified_call_waits_and_no_other() {
        for call in 0..1000 {
            let family = Family::of(call);
            let expected = if family.is_some() { NOTIFY } else { ALLOW };
            assert_eq!(
                answer(Names::Guarded, NATIVE, call, libc::O_CREAT),
                expected,
                "call {call}"
            );
            let is_free = family.is_none_or(|family| family == Family::Naming);
            let expected = if is_free { ALLOW } else { NOTIFY };
            assert_eq!(answer(Names::Free, NATIVE, call, libc::O_CREAT), expected, "call {call}");
            assert_eq!(answer(Names::Guarded, 0x4000_0003, call, 0), ALLOW, "foreign call {call}");
        }
    }

    #[test]
    fn an_open_that_creates_nothing_does_not_wait() {
        for flags in [libc::O_RDONLY, libc::O_RDWR | libc::O_TRUNC | libc::O_CLOEXEC] {
            assert_eq!(answer(Names::Guarded, NATIVE, libc::SYS_openat, flags), ALLOW);
        }
    }
}
