//! The calls that wait for the supervisor.

use super::bpf::{
    ALLOW, NATIVE, NOTIFY, Step, answer, any_of, equal, load_arch, load_argument, load_call,
};

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

/// What names come and go by, and what a file is opened by to be changed. `openat2` has its flags
/// in memory, which a filter cannot read.
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
pub(super) const WRITING: u32 =
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

/// The filter that lets some calls wait.
pub(super) fn notifying(names: Names) -> Result<Vec<Step>, std::num::TryFromIntError> {
    let naming = match names {
        Names::Guarded => NAMING,
        Names::Free => &[],
    };
    let mut filter = vec![
        load_arch(),
        // What comes by a foreign entry point is refused elsewhere.
        equal(NATIVE, 1, 0),
        answer(ALLOW),
        load_call(),
    ];
    for (call, which, _) in ALWAYS.iter().chain(naming) {
        let call = u32::try_from(*call)?;
        // Each test leads to the next line, which waits, or over it.
        let test = match *which {
            Which::All => None,
            Which::With(value) => Some([load_argument(0), equal(value, 0, 1)]),
            Which::Without(value) => Some([load_argument(0), equal(value, 1, 0)]),
            Which::Writing(at) => Some([load_argument(at), any_of(WRITING, 0, 1)]),
        };
        match test {
            None => filter.push(equal(call, 0, 1)),
            Some(test) => {
                filter.push(equal(call, 0, 4));
                filter.extend(test);
            }
        }
        filter.push(answer(NOTIFY));
        if *which != Which::All {
            filter.push(answer(ALLOW));
        }
    }
    filter.push(answer(ALLOW));
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::super::bpf::{Seen, run};
    use super::*;

    /// Every argument is `arg`.
    fn said(names: Names, arch: u32, call: libc::c_long, arg: u32) -> u32 {
        let call = u32::try_from(call).unwrap();
        run(&notifying(names).unwrap(), Seen { arch, call, args: [arg; 6] })
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
                    assert_eq!(said(names, NATIVE, call, arg), expected, "call {call}, {arg}");
                    assert_eq!(said(names, 0x4000_0003, call, arg), ALLOW, "foreign {call}");
                }
            }
        }
    }

    #[test]
    fn an_open_that_only_looks_does_not_wait() {
        for flags in [libc::O_RDONLY, libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC] {
            let flags = flags.cast_unsigned();
            assert_eq!(said(Names::Guarded, NATIVE, libc::SYS_openat, flags), ALLOW);
        }
    }
}
