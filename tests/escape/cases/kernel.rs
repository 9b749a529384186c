//! The kernel's surface: calls that the filter refuses, and that others pass.
//!
//! None of these calls is ever performed: the prisoner's own filter stands behind the jail's (see
//! `prisoner::calls`). Outside, every one of them passes.

use nix::libc;

use crate::area::Area;
use crate::needs::Need;
use crate::row::{Control, Defence, Expect, Probe, Row};

const PASSES: Expect = Expect::Is("passes");

pub(super) fn area() -> Area {
    let rows = [
        &namespaces_and_mounts()[..],
        &machine()[..],
        &out_of_sight()[..],
        &by_argument()[..],
        &entry_points()[..],
        &performed()[..],
        &harmless()[..],
    ];
    Area { name: "kernel", options: &[], env: &[], files: &[], rows: rows.concat(), facts: &[] }
}

const fn row(name: &'static str, call: i64, args: &'static [u64], inside: &'static str) -> Row {
    Row {
        name,
        defence: Defence::SeccompTable,
        needs: &[],
        probe: Probe::Call(call, args),
        inside: Expect::Is(inside),
        control: Control::Outside(PASSES),
    }
}

/// Rows of calls that are refused whatever their arguments are.
macro_rules! refused {
    ($errno:literal: $($call:ident)*) => {
        [$(row(concat!("agent_cannot_call_", stringify!($call)), numbers::$call, &[], $errno)),*]
    };
}

/// Call numbers: libc's, and those of the kernel's tables that it does not name yet.
mod numbers {
    #![expect(non_upper_case_globals, reason = "as libc names its own")]
    pub(super) use nix::libc::*;

    pub(super) const SYS_fchmodat2: i64 = 452;
    pub(super) const SYS_open_tree_attr: i64 = 467;
}

#[rustfmt::skip]
fn namespaces_and_mounts() -> Vec<Row> {
    refused!["EPERM":
        SYS_setns SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_open_tree_attr
        SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
        SYS_open_by_handle_at SYS_quotactl SYS_quotactl_fd
    ].to_vec()
}

#[rustfmt::skip]
fn machine() -> Vec<Row> {
    let mut rows = refused!["EPERM":
        SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_kexec_load SYS_kexec_file_load
        SYS_init_module SYS_finit_module SYS_delete_module SYS_fanotify_init SYS_lookup_dcookie
        SYS_move_pages SYS_migrate_pages SYS_process_madvise SYS_reboot SYS_swapon SYS_swapoff
        SYS_acct SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname
        SYS_setdomainname SYS_syslog SYS_vhangup SYS_nfsservctl
    ].to_vec();
    #[cfg(target_arch = "x86_64")]
    rows.extend(refused!["EPERM":
        SYS_iopl SYS_ioperm SYS_modify_ldt SYS__sysctl SYS_uselib SYS_ustat SYS_sysfs
    ]);
    rows
}

/// As if the kernel did not have them, so that programs fall back.
#[rustfmt::skip]
fn out_of_sight() -> Vec<Row> {
    refused!["ENOSYS":
        SYS_clone3 SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
        SYS_add_key SYS_request_key SYS_keyctl SYS_openat2
    ].to_vec()
}

const fn bits(value: i32) -> u64 {
    value.cast_unsigned() as u64
}

/// What a 64-bit register holds beyond the 32 bits that the kernel looks at.
const BEYOND: u64 = 1 << 32;

const SIGCHLD: u64 = bits(libc::SIGCHLD);
const CLONE_NEWTIME: u64 = 0x80;
const TIOCLINUX: u64 = 0x541c;
const KDSETMODE: u64 = 0x4b3a;
const KDSKBENT: u64 = 0x4b47;
const PER_LINUX32: u64 = 8;
const AT_CWD: u64 = bits(libc::AT_FDCWD) & 0xffff_ffff;
const CREATE: u64 = bits(libc::O_CREAT | libc::O_WRONLY);
const NAMELESS: u64 = bits(libc::O_TMPFILE | libc::O_WRONLY);
const FAST_OPEN: u64 = bits(libc::MSG_FASTOPEN);

/// A row's name, its call and the arguments.
type Call = (&'static str, i64, &'static [u64]);

/// Calls that are refused with these arguments and pass with others ([`HARMLESS`]).
#[rustfmt::skip]
const BY_ARGUMENT: &[Call] = &[
        ("agent_cannot_clone_into_a_user_namespace", libc::SYS_clone, &[bits(libc::CLONE_NEWUSER) | SIGCHLD]),
        ("agent_cannot_clone_into_a_network_namespace", libc::SYS_clone, &[bits(libc::CLONE_NEWNET) | SIGCHLD]),
        ("agent_cannot_unshare_its_users", libc::SYS_unshare, &[bits(libc::CLONE_NEWUSER)]),
        ("agent_cannot_unshare_its_mounts", libc::SYS_unshare, &[bits(libc::CLONE_NEWNS)]),
        ("agent_cannot_unshare_its_processes", libc::SYS_unshare, &[bits(libc::CLONE_NEWPID)]),
        ("agent_cannot_unshare_its_network", libc::SYS_unshare, &[bits(libc::CLONE_NEWNET)]),
        ("agent_cannot_unshare_its_ipc", libc::SYS_unshare, &[bits(libc::CLONE_NEWIPC)]),
        ("agent_cannot_unshare_its_host_name", libc::SYS_unshare, &[bits(libc::CLONE_NEWUTS)]),
        ("agent_cannot_unshare_its_control_group", libc::SYS_unshare, &[bits(libc::CLONE_NEWCGROUP)]),
        ("agent_cannot_unshare_its_clocks", libc::SYS_unshare, &[CLONE_NEWTIME]),
        ("high_bits_do_not_hide_a_namespace", libc::SYS_unshare, &[BEYOND | bits(libc::CLONE_NEWUSER)]),
        ("agent_cannot_open_packet_sockets", libc::SYS_socket, &[bits(libc::AF_PACKET), 3, 0]),
        ("agent_cannot_open_vsock_sockets", libc::SYS_socket, &[bits(libc::AF_VSOCK), 1, 0]),
        ("agent_cannot_open_crypto_sockets", libc::SYS_socket, &[bits(libc::AF_ALG), 5, 0]),
        ("agent_cannot_open_bluetooth_sockets", libc::SYS_socket, &[bits(libc::AF_BLUETOOTH), 1, 0]),
        ("agent_cannot_open_can_sockets", libc::SYS_socket, &[bits(libc::AF_CAN), 3, 1]),
        ("agent_cannot_open_tipc_sockets", libc::SYS_socket, &[bits(libc::AF_TIPC), 5, 0]),
        ("agent_cannot_open_xdp_sockets", libc::SYS_socket, &[bits(libc::AF_XDP), 3, 0]),
        ("agent_cannot_open_rds_sockets", libc::SYS_socket, &[bits(libc::AF_RDS), 5, 0]),
        ("agent_cannot_open_key_sockets", libc::SYS_socket, &[bits(libc::AF_KEY), 3, 2]),
        ("high_bits_do_not_hide_a_socket_family", libc::SYS_socket, &[BEYOND | bits(libc::AF_PACKET), 3, 0]),
        ("agent_cannot_pair_sockets_of_other_families", libc::SYS_socketpair, &[bits(libc::AF_TIPC), 5, 0]),
        ("agent_cannot_connect_by_sendto", libc::SYS_sendto, &[3, 0, 0, FAST_OPEN]),
        ("agent_cannot_connect_by_sendmsg", libc::SYS_sendmsg, &[3, 0, FAST_OPEN]),
        ("agent_cannot_connect_by_sendmmsg", libc::SYS_sendmmsg, &[3, 0, 1, FAST_OPEN]),
        ("agent_cannot_type_for_the_user", libc::SYS_ioctl, &[0, libc::TIOCSTI]),
        ("high_bits_do_not_hide_an_ioctl", libc::SYS_ioctl, &[0, BEYOND | libc::TIOCSTI]),
        ("agent_cannot_paste_into_a_console", libc::SYS_ioctl, &[0, TIOCLINUX]),
        ("agent_cannot_change_a_line_discipline", libc::SYS_ioctl, &[0, libc::TIOCSETD]),
        ("agent_cannot_redefine_keys", libc::SYS_ioctl, &[0, KDSKBENT]),
        ("agent_cannot_take_a_console", libc::SYS_ioctl, &[0, KDSETMODE]),
        ("agent_cannot_change_its_personality", libc::SYS_personality, &[PER_LINUX32]),
        #[cfg(target_arch = "x86_64")]
        ("agent_cannot_set_an_id_bit_by_chmod", libc::SYS_chmod, &[0, 0o4755]),
        ("agent_cannot_set_an_id_bit_by_fchmod", libc::SYS_fchmod, &[0, 0o2755]),
        ("agent_cannot_set_an_id_bit_by_fchmodat", libc::SYS_fchmodat, &[AT_CWD, 0, 0o4755]),
        ("agent_cannot_set_an_id_bit_by_fchmodat2", numbers::SYS_fchmodat2, &[AT_CWD, 0, 0o4755]),
        #[cfg(target_arch = "x86_64")]
        ("agent_cannot_create_with_an_id_bit", libc::SYS_creat, &[0, 0o4755]),
        #[cfg(target_arch = "x86_64")]
        ("agent_cannot_open_with_an_id_bit", libc::SYS_open, &[0, CREATE, 0o4755]),
        ("agent_cannot_open_at_with_an_id_bit", libc::SYS_openat, &[AT_CWD, 0, CREATE, 0o2755]),
        ("agent_cannot_open_nameless_with_an_id_bit", libc::SYS_openat, &[AT_CWD, 0, NAMELESS, 0o4755]),
        ("agent_cannot_make_a_node_with_an_id_bit", libc::SYS_mknodat, &[AT_CWD, 0, 0o104_755, 0]),
];

fn by_argument() -> Vec<Row> {
    BY_ARGUMENT.iter().map(|&(name, call, args)| row(name, call, args, "EPERM")).collect()
}

/// Numbers and doors that the table does not know.
fn entry_points() -> Vec<Row> {
    let row =
        |name, call| Row { defence: Defence::SeccompEntryPoints, ..row(name, call, &[], "ENOSYS") };
    let mut rows = vec![
        row("agent_cannot_call_the_first_unknown_number", 470),
        row("agent_cannot_call_a_number_of_a_later_kernel", 500),
        row("agent_cannot_call_a_far_number", 0x3fff_ffff),
    ];
    #[cfg(target_arch = "x86_64")]
    rows.extend([
        row("agent_cannot_call_by_an_x32_number", 0x4000_0000 | libc::SYS_getpid),
        Row {
            probe: Probe::Words(&["passes-32-bit"]),
            needs: &[Need::Ia32],
            ..row("agent_cannot_call_as_a_32_bit_program", 0)
        },
    ]);
    rows
}

/// The same walls with the call performed.
fn performed() -> Vec<Row> {
    let row = |name, words, control| Row {
        name,
        defence: Defence::SeccompTable,
        needs: &[],
        probe: Probe::Words(words),
        inside: Expect::Is("EPERM"),
        control: Control::Outside(control),
    };
    vec![
        row("agent_gets_no_user_namespace_by_unshare", &["unshare-user"], Expect::Is("ok")),
        row("agent_gets_no_user_namespace_by_clone", &["clone-user"], Expect::Is("ok")),
        // Without the filter it is a setting of the kernel that decides.
        row("agent_types_nothing", &["type-for-the-user"], Expect::IsNot("EPERM")),
    ]
}

/// The twins of [`BY_ARGUMENT`]: the same calls with arguments that programs use.
#[rustfmt::skip]
const HARMLESS: &[Call] = &[
        ("agent_may_fork", libc::SYS_clone, &[SIGCHLD]),
        ("agent_may_change_a_mode", libc::SYS_fchmod, &[0, 0o755]),
        ("what_lies_where_no_mode_is_asked_is_no_mode", libc::SYS_openat, &[AT_CWD, 0, 0, 0o6755]),
        ("agent_may_unshare_its_descriptors", libc::SYS_unshare, &[bits(libc::CLONE_FILES)]),
        ("agent_may_open_internet_sockets", libc::SYS_socket, &[bits(libc::AF_INET), 1, 0]),
        ("agent_may_open_local_sockets", libc::SYS_socket, &[bits(libc::AF_UNIX), 1, 0]),
        ("agent_may_ask_for_interfaces", libc::SYS_socket, &[bits(libc::AF_NETLINK), 3, 0]),
        ("agent_may_pair_local_sockets", libc::SYS_socketpair, &[bits(libc::AF_UNIX), 1, 0]),
        ("agent_may_send", libc::SYS_sendto, &[3, 0, 0, bits(libc::MSG_NOSIGNAL)]),
        ("agent_may_ask_for_the_window_size", libc::SYS_ioctl, &[0, libc::TIOCGWINSZ]),
        ("agent_may_ask_for_its_personality", libc::SYS_personality, &[0xffff_ffff]),
        ("agent_may_switch_randomisation_off", libc::SYS_personality, &[bits(libc::ADDR_NO_RANDOMIZE)]),
];

fn harmless() -> Vec<Row> {
    HARMLESS
        .iter()
        .map(|&(name, call, args)| Row {
            defence: Defence::None,
            ..row(name, call, args, "passes")
        })
        .collect()
}
