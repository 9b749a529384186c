//! The table of refused calls.

/// What a refused call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// `EPERM`: the call exists and is not for the agent.
    NotPermitted,
    /// `ENOSYS`: as on a kernel without the call, so that programs fall back.
    NotThere,
}

/// When a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Argument `arg`, as 32 bits under `mask`, equals `value`.
    Masked {
        arg: u8,
        mask: u32,
        value: u32,
    },
    /// Argument `arg`, as 32 bits under `mask`, is not zero.
    AnyOf {
        arg: u8,
        mask: u32,
    },
    /// Argument `flags` asks for a new file and argument `mode` has one of the bits of `mask`.
    Creates {
        flags: u8,
        mode: u8,
        mask: u32,
    },
    /// Argument `arg`, as 32 bits, is none of these.
    NoneOf {
        arg: u8,
        values: &'static [u32],
    },
}

/// A refused call and why it is refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) call: i64,
    /// As the kernel's headers name it: `SYS_mount`.
    pub(super) constant: &'static str,
    pub(super) answer: Answer,
    pub(super) when: When,
    pub(super) why: &'static str,
}

/// A refusal of the call with this constant's name, always with `EPERM`.
macro_rules! never {
    ($call:ident, $why:literal $(,)?) => {
        refusal!($call, Answer::NotPermitted, When::Always, $why)
    };
}

/// A refusal of the call with this constant's name, always with `ENOSYS`.
macro_rules! absent {
    ($call:ident, $why:literal $(,)?) => {
        refusal!($call, Answer::NotThere, When::Always, $why)
    };
}

/// A refusal of the call with this constant's name, under a condition, with `EPERM`.
macro_rules! when {
    ($call:ident, $when:expr, $why:literal $(,)?) => {
        refusal!($call, Answer::NotPermitted, $when, $why)
    };
}

macro_rules! refusal {
    ($call:ident, $answer:expr, $when:expr, $why:literal $(,)?) => {
        Refusal {
            call: numbers::$call,
            constant: stringify!($call),
            answer: $answer,
            when: $when,
            why: $why,
        }
    };
}

const fn bits(value: i32) -> u32 {
    value.cast_unsigned()
}

/// Ioctl numbers are 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "ioctl numbers are 32 bits")]
const fn request(number: u64) -> When {
    When::Masked { arg: 1, mask: u32::MAX, value: number as u32 }
}

const NEW_NAMESPACES: u32 = bits(
    libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP,
);
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
const CLONE_NEWTIME: u32 = 0x80;
const SOCKET_FAMILIES: &[u32] =
    &[bits(libc::AF_UNIX), bits(libc::AF_INET), bits(libc::AF_INET6), bits(libc::AF_NETLINK)];

/// Call numbers: libc's, and those of the kernel's tables that it does not name yet.
mod numbers {
    #![expect(non_upper_case_globals, reason = "as libc names its own")]
    pub(super) use libc::*;

    pub(super) const SYS_fchmodat2: i64 = 452;
    pub(super) const SYS_open_tree_attr: i64 = 467;
    #[cfg(target_arch = "x86_64")]
    pub(super) const SYS_uretprobe: i64 = 335;
    #[cfg(target_arch = "x86_64")]
    pub(super) const SYS_uprobe: i64 = 336;
}

const QUERY_PERSONALITY: u32 = u32::MAX;
const TIOCLINUX: u64 = 0x541c;
const KDSETKEYCODE: u64 = 0x4b4d;
const KDSKBENT: u64 = 0x4b47;
const KDSKBSENT: u64 = 0x4b49;
const KDSETMODE: u64 = 0x4b3a;

/// Every refused call.
pub(super) const REFUSED: &[Refusal] = &[
    // Defence::SeccompTable: kernel::agent_cannot_call_SYS_mount.
    // Namespaces and mounts: a new user namespace gives back the capabilities that were dropped.
    when!(
        SYS_clone,
        When::AnyOf { arg: 0, mask: NEW_NAMESPACES },
        "a new user namespace has every capability over itself",
    ),
    when!(
        SYS_unshare,
        When::AnyOf { arg: 0, mask: NEW_NAMESPACES | CLONE_NEWTIME },
        "a new user namespace has every capability over itself",
    ),
    absent!(
        SYS_clone3,
        "its flags lie in memory, where no filter sees them; libc falls back to clone",
    ),
    never!(SYS_setns, "joins namespaces other than the jail's"),
    never!(SYS_mount, "changes what names mean"),
    never!(SYS_umount2, "takes a mask off"),
    never!(SYS_pivot_root, "leaves the jail's root"),
    never!(SYS_chroot, "changes what names mean"),
    never!(SYS_open_tree, "copies mounts without their masks"),
    never!(SYS_open_tree_attr, "copies mounts without their masks"),
    never!(SYS_move_mount, "moves a mask"),
    never!(SYS_fsopen, "makes filesystems"),
    never!(SYS_fsconfig, "makes filesystems"),
    never!(SYS_fsmount, "makes filesystems"),
    never!(SYS_fspick, "reconfigures filesystems"),
    never!(SYS_mount_setattr, "makes read-only mounts writable"),
    never!(SYS_open_by_handle_at, "opens files by number, past every name",),
    never!(SYS_quotactl, "changes quotas of the host's filesystems",),
    never!(SYS_quotactl_fd, "changes quotas of the host's filesystems",),
    // Set-id bits: inside they do nothing, but the host sees them, and under a root caller the file
    // is root's there.
    #[cfg(target_arch = "x86_64")]
    when!(SYS_chmod, When::AnyOf { arg: 1, mask: SET_ID }, "leaves a set-id program on the host"),
    when!(SYS_fchmod, When::AnyOf { arg: 1, mask: SET_ID }, "leaves a set-id program on the host"),
    when!(
        SYS_fchmodat,
        When::AnyOf { arg: 2, mask: SET_ID },
        "leaves a set-id program on the host"
    ),
    when!(
        SYS_fchmodat2,
        When::AnyOf { arg: 2, mask: SET_ID },
        "leaves a set-id program on the host"
    ),
    #[cfg(target_arch = "x86_64")]
    when!(SYS_creat, When::AnyOf { arg: 1, mask: SET_ID }, "leaves a set-id program on the host"),
    #[cfg(target_arch = "x86_64")]
    when!(SYS_mknod, When::AnyOf { arg: 1, mask: SET_ID }, "leaves a set-id program on the host"),
    when!(SYS_mknodat, When::AnyOf { arg: 2, mask: SET_ID }, "leaves a set-id program on the host"),
    #[cfg(target_arch = "x86_64")]
    when!(
        SYS_open,
        When::Creates { flags: 1, mode: 2, mask: SET_ID },
        "leaves a set-id program on the host"
    ),
    when!(
        SYS_openat,
        When::Creates { flags: 2, mode: 3, mask: SET_ID },
        "leaves a set-id program on the host"
    ),
    absent!(SYS_openat2, "its mode lies in memory, where no filter sees it; callers fall back"),
    // Kernel code with a large surface and no use in builds and tests.
    absent!(SYS_io_uring_setup, "performs calls out of sight of this filter",),
    absent!(SYS_io_uring_enter, "performs calls out of sight of this filter",),
    absent!(SYS_io_uring_register, "performs calls out of sight of this filter",),
    never!(SYS_bpf, "loads programs into the kernel"),
    never!(SYS_perf_event_open, "measures other processes and the kernel",),
    never!(SYS_userfaultfd, "stops the kernel in the middle of a copy, a tool of exploits",),
    never!(SYS_kexec_load, "replaces the kernel"),
    never!(SYS_kexec_file_load, "replaces the kernel"),
    never!(SYS_init_module, "loads kernel code"),
    never!(SYS_finit_module, "loads kernel code"),
    never!(SYS_delete_module, "unloads kernel code"),
    never!(SYS_fanotify_init, "watches whole filesystems"),
    never!(SYS_lookup_dcookie, "names files by number"),
    never!(SYS_move_pages, "moves other processes' memory"),
    never!(SYS_migrate_pages, "moves other processes' memory"),
    never!(SYS_process_madvise, "changes other processes' memory"),
    // Keyrings are not namespaced.
    absent!(SYS_add_key, "keyrings are shared with the host"),
    absent!(SYS_request_key, "calls a program of the host"),
    absent!(SYS_keyctl, "keyrings are shared with the host"),
    // The machine.
    never!(SYS_reboot, "stops the machine"),
    never!(SYS_swapon, "changes the machine's memory"),
    never!(SYS_swapoff, "changes the machine's memory"),
    never!(SYS_acct, "writes process accounts"),
    never!(SYS_settimeofday, "sets the machine's clock"),
    never!(SYS_clock_settime, "sets the machine's clock"),
    never!(SYS_clock_adjtime, "sets the machine's clock"),
    never!(SYS_adjtimex, "sets the machine's clock"),
    never!(SYS_sethostname, "names the machine"),
    never!(SYS_setdomainname, "names the machine"),
    never!(SYS_syslog, "reads the kernel's log"),
    never!(SYS_vhangup, "hangs up a terminal"),
    never!(SYS_nfsservctl, "gone from the kernel"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_iopl, "reaches the hardware's ports"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_ioperm, "reaches the hardware's ports"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_modify_ldt, "sets up 16-bit segments, a tool of exploits",),
    #[cfg(target_arch = "x86_64")]
    never!(SYS__sysctl, "gone from the kernel"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_uselib, "gone from the kernel"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_ustat, "gone from libc"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_sysfs, "gone from libc"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_uretprobe, "the kernel's own"),
    #[cfg(target_arch = "x86_64")]
    never!(SYS_uprobe, "the kernel's own"),
    // Sockets: what the door and the tap see, local sockets, and asking for interfaces.
    when!(
        SYS_socket,
        When::NoneOf { arg: 0, values: SOCKET_FAMILIES },
        "families that the door and the tap do not see, vsock among them",
    ),
    when!(
        SYS_socketpair,
        When::NoneOf { arg: 0, values: &[bits(libc::AF_UNIX)] },
        "families that the door and the tap do not see",
    ),
    when!(
        SYS_sendto,
        When::AnyOf { arg: 3, mask: bits(libc::MSG_FASTOPEN) },
        "connects without a connect to judge",
    ),
    when!(
        SYS_sendmsg,
        When::AnyOf { arg: 2, mask: bits(libc::MSG_FASTOPEN) },
        "connects without a connect to judge",
    ),
    when!(
        SYS_sendmmsg,
        When::AnyOf { arg: 3, mask: bits(libc::MSG_FASTOPEN) },
        "connects without a connect to judge",
    ),
    // Terminals: what types for the user.
    when!(SYS_ioctl, request(libc::TIOCSTI), "types into the caller's terminal"),
    when!(SYS_ioctl, request(TIOCLINUX), "pastes into a virtual console"),
    when!(
        SYS_ioctl,
        request(libc::TIOCSETD),
        "changes a terminal's line discipline, old kernel code"
    ),
    when!(SYS_ioctl, request(KDSETKEYCODE), "redefines keys of a virtual console"),
    when!(SYS_ioctl, request(KDSKBENT), "redefines keys of a virtual console"),
    when!(SYS_ioctl, request(KDSKBSENT), "redefines keys of a virtual console"),
    when!(SYS_ioctl, request(KDSETMODE), "takes a virtual console"),
    // Programs of another personality meet other kernel code.
    when!(
        SYS_personality,
        When::NoneOf { arg: 0, values: &[0, bits(libc::ADDR_NO_RANDOMIZE), QUERY_PERSONALITY] },
        "other personalities meet rarely used kernel code",
    ),
];

/// A refused call, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall {
    pub name: &'static str,
    /// Whether it is refused whatever its arguments are.
    pub scope: &'static str,
    pub why: &'static str,
}

/// The table, for people.
pub fn refused_calls() -> impl Iterator<Item = RefusedCall> {
    REFUSED.iter().map(|refusal| RefusedCall {
        name: refusal.constant.trim_start_matches("SYS_"),
        scope: if refusal.when == When::Always { "always" } else { "by argument" },
        why: refusal.why,
    })
}

/// Calls from this number on came after this table was written.
pub(super) const FIRST_UNKNOWN: u32 = 470;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refused_call_has_a_reason_and_one_answer() {
        for refusal in REFUSED {
            assert!(!refusal.why.is_empty(), "call {}", refusal.call);
            let answers = REFUSED.iter().filter(|other| other.call == refusal.call);
            assert!(answers.clone().all(|other| other.answer == refusal.answer));
            let repeated = answers.filter(|other| other.when == refusal.when).count();
            assert_eq!(repeated, 1, "call {} stands twice", refusal.call);
        }
    }
}
