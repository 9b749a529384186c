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
    /// What a program's C library or runtime calls before any code of the program's own, and not
    /// again: the first moment at which it can be looked at.
    Begin,
    /// The end of a process that is not content, such as one whose exec failed.
    Exit,
}

/// Which calls of a number wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// Those with this first argument, of which 32 bits count.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "its call is x86's"))]
    With(u32),
    /// Those with another first argument.
    Without(u32),
    /// Those whose argument of this place, the flags of open(2), may make or change a file.
    Writing(usize),
}

/// A call that waits for the supervisor.
type Waits = (libc::c_long, Which, Family);

/// The calls that wait in every jail. One that does not wait costs its caller nothing; one that
/// does costs some 20 µs.
const ALWAYS: &[Waits] = &[
    (libc::SYS_connect, Which::All, Family::Connect),
    (libc::SYS_execve, Which::All, Family::Exec),
    (libc::SYS_execveat, Which::All, Family::Exec),
    // The thread pointer is set once. Where no call sets it, the C library still makes this one.
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_arch_prctl, Which::With(ARCH_SET_FS), Family::Begin),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_set_tid_address, Which::All, Family::Begin),
    (libc::SYS_exit_group, Which::Without(0), Family::Exit),
];

/// What names come and go by, and what a file is opened by to be changed. `openat2` has its flags in memory, which a filter cannot read.
const NAMING: &[Waits] = &[
    (libc::SYS_openat, Which::Writing(2), Family::Naming),
    (libc::SYS_openat2, Which::All, Family::Naming),
    (libc::SYS_mkdirat, Which::All, Family::Naming),
    (libc::SYS_unlinkat, Which::All, Family::Naming),
    (libc::SYS_renameat2, Which::All, Family::Naming),
    (libc::SYS_linkat, Which::All, Family::Naming),
    (libc::SYS_symlinkat, Which::All, Family::Naming),
    (libc::SYS_mknodat, Which::All, Family::Naming),
    (libc::SYS_renameat, Which::All, Family::Naming),
    (libc::SYS_bind, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, Which::Writing(1), Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, Which::All, Family::Naming),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, Which::All, Family::Naming),
];

/// The flags of open(2) without which it only looks.
const WRITING: u32 =
    (libc::O_CREAT | libc::O_WRONLY | libc::O_RDWR | libc::O_TRUNC).cast_unsigned();

// From arch/x86/include/uapi/asm/prctl.h.
#[cfg(target_arch = "x86_64")]
const ARCH_SET_FS: u32 = 0x1002;

impl Family {
    /// Whose the call number `call` is; `None` for one that no filter of ours notifies.
    pub(crate) fn of(call: libc::c_long) -> Option<Self> {
        let mut known = ALWAYS.iter().chain(NAMING);
        known.find(|(number, ..)| *number == call).map(|(.., family)| *family)
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
    // The lower half, on machines that count from the little end.
    let argument = |at: usize| load(offset_of!(libc::seccomp_data, args) + at * size_of::<u64>());
    let mut filter = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        // The other filters refuse what comes by a foreign entry point.
        instruction(EQUAL, 1, 0, NATIVE),
        instruction(RETURN, 0, 0, ALLOW),
        load(offset_of!(libc::seccomp_data, nr)),
    ];
    for (call, which, _) in ALWAYS.iter().chain(naming) {
        let call = u32::try_from(*call)?;
        // Each test leads to the next line, which waits, or over it.
        let test = match *which {
            Which::All => None,
            Which::With(value) => Some([argument(0), instruction(EQUAL, 0, 1, value)]),
            Which::Without(value) => Some([argument(0), instruction(EQUAL, 1, 0, value)]),
            Which::Writing(at) => Some([argument(at), instruction(ANY_OF, 0, 1, WRITING)]),
        };
        match test {
            None => filter.push(instruction(EQUAL, 0, 1, call)),
            Some(test) => {
                filter.push(instruction(EQUAL, 0, 4, call));
                filter.extend(test);
            }
        }
        filter.push(instruction(RETURN, 0, 0, NOTIFY));
        if *which != Which::All {
            filter.push(instruction(RETURN, 0, 0, ALLOW));
        }
    }
    filter.push(instruction(RETURN, 0, 0, ALLOW));
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel does; every argument is `arg`.
    fn answer(names: Names, arch: u32, call: libc::c_long, arg: u32) -> u32 {
        let (filter, mut at, mut loaded) = (notifying(names).unwrap(), 0, 0);
        loop {
            let step = filter[at];
            at += 1;
            match step.code {
                LOAD if step.k == 4 => loaded = arch,
                LOAD if step.k == 0 => loaded = u32::try_from(call).unwrap(),
                LOAD => loaded = arg,
                EQUAL if loaded == step.k => at += usize::from(step.jt),
                ANY_OF if loaded & step.k != 0 => at += usize::from(step.jt),
                EQUAL | ANY_OF => at += usize::from(step.jf),
                _ => return step.k,
            }
        }
    }

    fn waits(names: Names, call: libc::c_long, arg: u32) -> bool {
        let naming = if names == Names::Guarded { NAMING } else { &[] };
        let known = ALWAYS.iter().chain(naming).find(|(number, ..)| *number == call);
        known.is_some_and(|(_, which, _)| match *which {
            Which::All => true,
            Which::With(value) => arg == value,
            Which::Without(value) => arg != value,
            Which::Writing(_) => arg & WRITING != 0,
        })
    }

    #[test]
    fn every_notified_call_waits_and_no_other() {
        for call in 0..1000 {
            let (create, directory) =
                (libc::O_CREAT.cast_unsigned(), libc::O_DIRECTORY.cast_unsigned());
            for arg in [0, 1, 0x1002, create, directory, u32::MAX] {
                for names in [Names::Guarded, Names::Free] {
                    let expected = if waits(names, call, arg) { NOTIFY } else { ALLOW };
                    assert_eq!(answer(names, NATIVE, call, arg), expected, "call {call}, {arg}");
                    assert_eq!(answer(names, 0x4000_0003, call, arg), ALLOW, "foreign {call}");
                }
            }
        }
    }

    #[test]
    fn an_open_that_only_looks_does_not_wait() {
        for flags in [libc::O_RDONLY, libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC] {
            let flags = flags.cast_unsigned();
            assert_eq!(answer(Names::Guarded, NATIVE, libc::SYS_openat, flags), ALLOW);
        }
    }
}
