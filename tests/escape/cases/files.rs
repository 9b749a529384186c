//! Files: what is hidden shows its decoy, what is protected stays as it is, what is the host's is
//! not there.
//!
//! Every row has a file of its own, so that outside, where each probe succeeds, none spoils another.

use anyhow::{Context as _, ensure};

use crate::area::{Area, Fact};
use crate::needs::Need;
use crate::play::Played;
use crate::record;
use crate::row::{Control, Defence, Expect, Probe, Row};

pub(super) fn area() -> Area {
    let rows = [hidden(), protected(), aliases(), of_the_host(), of_the_kernel()].concat();
    let files = &[
        "closed/alias/.env",
        "closed/deep/.env",
        "closed/tree/.env",
        "infra/alias/main.tf",
        "infra/tree/main.tf",
        ".git/config",
        ".git/hooks/pre-commit",
        "open/tree-1/plain.txt",
        "open/tree-2/plain.txt",
    ];
    Area { name: "files", options: &[], env: &[], files, rows, facts: FACTS }
}

const OK: Expect = Expect::Is("ok");

fn row(
    name: &'static str,
    defence: Defence,
    words: &'static [&'static str],
    inside: &'static str,
    control: Expect,
) -> Row {
    Row {
        name,
        defence,
        needs: &[],
        probe: Probe::Words(words),
        inside: Expect::Is(inside),
        control: Control::Outside(control),
    }
}

/// What is hidden can be neither read nor changed nor moved away nor given another name.
#[rustfmt::skip]
fn hidden() -> Vec<Row> {
    let rows: &[(&'static str, &'static [&'static str], &'static str)] = &[
        ("agent_cannot_append_to_a_hidden_file", &["append", "closed/append/.env"], "EACCES"),
        ("agent_cannot_open_a_hidden_file_to_write", &["open-to-write", "closed/write/.env"], "EACCES"),
        ("agent_cannot_open_a_hidden_file_to_truncate", &["open-to-truncate", "closed/trunc/.env"], "EACCES"),
        ("agent_cannot_truncate_a_hidden_file", &["truncate", "closed/truncate/.env"], "EACCES"),
        ("agent_cannot_map_a_hidden_file_to_write", &["map", "closed/map/.env"], "EACCES"),
        ("agent_cannot_chmod_a_hidden_file", &["chmod", "closed/chmod/.env"], "EROFS"),
        ("agent_cannot_touch_a_hidden_file", &["touch", "closed/touch/.env"], "EROFS"),
        ("agent_cannot_set_attributes_of_a_hidden_file", &["set-attribute", "closed/attribute/.env"], "EROFS"),
        ("agent_cannot_unlink_a_hidden_file", &["unlink", "closed/unlink/.env"], "EACCES"),
        ("agent_cannot_rename_a_hidden_file", &["rename", "closed/rename/.env", "closed/rename/away"], "EACCES"),
        ("agent_cannot_rename_onto_a_hidden_file", &["rename", "closed/onto/plain.txt", "closed/onto/.env"], "EACCES"),
        ("agent_cannot_exchange_a_hidden_file", &["exchange", "closed/exchange/plain.txt", "closed/exchange/.env"], "EACCES"),
        ("agent_cannot_move_a_hidden_file_to_a_new_name", &["rename-new", "closed/new/.env", "closed/new/away"], "EACCES"),
        ("agent_cannot_remove_the_directory_of_a_hidden_file", &["remove-tree", "closed/tree"], "EACCES"),
        ("agent_cannot_link_a_hidden_file", &["link", "closed/link/.env", "closed/link/away"], "EACCES"),
        ("agent_cannot_move_the_directory_of_a_hidden_file_away", &["rename-and-rebuild", "closed/deep", ".env"], "EACCES"),
        ("agent_cannot_make_a_hidden_name_where_it_was_not", &["create", "open/made-hidden/.env.local"], "EACCES"),
        ("agent_cannot_link_a_hidden_files_descriptor", &["link-descriptor", "closed/descriptor/.env", "closed/descriptor/away"], "EROFS"),
    ];
    let mut rows: Vec<Row> = rows.iter()
        .map(|&(name, words, inside)| row(name, Defence::HiddenMask, words, inside, OK))
        .collect();
    rows.push(row("a_hidden_file_shows_its_decoy", Defence::HiddenMask,
        &["read", "closed/read/.env"], "decoy", Expect::Is("canary")));
    // The directory of the row above must have a hidden file to begin with.
    rows.push(row("a_hidden_file_in_a_kept_tree_shows_its_decoy", Defence::HiddenMask,
        &["read", "closed/kept/tree/.env"], "decoy", Expect::Is("canary")));
    rows
}

/// What is protected can be read and nothing else.
#[rustfmt::skip]
fn protected() -> Vec<Row> {
    let rows: &[(&'static str, &'static [&'static str], &'static str)] = &[
        ("agent_cannot_append_to_a_protected_file", &["append", "infra/append/main.tf"], "EROFS"),
        ("agent_cannot_open_a_protected_file_to_write", &["open-to-write", "infra/write/main.tf"], "EROFS"),
        ("agent_cannot_open_a_protected_file_to_truncate", &["open-to-truncate", "infra/trunc/main.tf"], "EROFS"),
        ("agent_cannot_truncate_a_protected_file", &["truncate", "infra/truncate/main.tf"], "EROFS"),
        ("agent_cannot_map_a_protected_file_to_write", &["map", "infra/map/main.tf"], "EROFS"),
        ("agent_cannot_chmod_a_protected_file", &["chmod", "infra/chmod/main.tf"], "EROFS"),
        ("agent_cannot_touch_a_protected_file", &["touch", "infra/touch/main.tf"], "EROFS"),
        ("agent_cannot_set_attributes_of_a_protected_file", &["set-attribute", "infra/attribute/main.tf"], "EROFS"),
        ("agent_cannot_unlink_a_protected_file", &["unlink", "infra/unlink/main.tf"], "EACCES"),
        ("agent_cannot_remove_a_protected_directory", &["remove-tree", "infra/tree"], "EACCES"),
        ("agent_cannot_rename_a_protected_file", &["rename", "infra/rename/main.tf", "infra/rename/away"], "EACCES"),
        ("agent_cannot_move_a_protected_file_out", &["rename", "infra/out/main.tf", "open/out"], "EACCES"),
        ("agent_cannot_rename_into_a_protected_directory", &["rename", "open/in/plain.txt", "infra/in/main.tf"], "EACCES"),
        ("agent_cannot_exchange_a_protected_file", &["exchange", "open/swap/plain.txt", "infra/swap/main.tf"], "EACCES"),
        ("agent_cannot_link_a_protected_file", &["link", "infra/link/main.tf", "open/link"], "EACCES"),
        ("agent_cannot_link_a_protected_files_descriptor", &["link-descriptor", "infra/descriptor/main.tf", "open/descriptor"], "EROFS"),
        ("agent_cannot_link_into_a_protected_directory", &["link", "open/into/plain.txt", "infra/into"], "EACCES"),
        ("agent_cannot_create_in_a_protected_directory", &["create", "infra/create/new.tf"], "EACCES"),
        ("agent_cannot_make_a_directory_in_a_protected_one", &["mkdir", "infra/mkdir/new"], "EACCES"),
        ("agent_cannot_make_a_link_in_a_protected_directory", &["symlink", "/tmp", "infra/symlink/new"], "EACCES"),
        ("agent_cannot_make_a_protected_name_where_it_was_not", &["create", "open/made-protected/kvro-jail.toml"], "EACCES"),
        ("agent_cannot_append_to_a_protected_git_config", &["append", ".git/config"], "EROFS"),
        ("agent_cannot_add_a_git_hook", &["create", ".git/hooks/pre-push"], "EACCES"),
        ("agent_cannot_change_a_git_hook", &["open-to-truncate", ".git/hooks/pre-commit"], "EROFS"),
    ];
    let mut rows: Vec<Row> = rows.iter()
        .map(|&(name, words, inside)| row(name, Defence::ProtectedMask, words, inside, OK))
        .collect();
    rows.push(row("agent_may_read_a_protected_file", Defence::None,
        &["read", "infra/read/main.tf"], "canary", Expect::Is("canary")));
    // Outside these would spoil the other rows' files.
    let refused = |name, words: &'static [&'static str], twin| Row {
        control: Control::Twin(twin, OK),
        ..row(name, Defence::ProtectedMask, words, "EACCES", OK)
    };
    rows.extend([
        refused("agent_cannot_move_a_protected_directory_away", &["rename", "infra", "open/infra"],
            &["rename", "open/tree-1", "open/tree-1-away"]),
        refused("agent_cannot_replace_the_git_config", &["rename", "open/config-1/plain.txt", ".git/config"],
            &["rename", "open/config-2/plain.txt", "open/config-2/away"]),
        refused("agent_cannot_move_the_git_hooks_away", &["rename", ".git/hooks", ".git/away"],
            &["rename", "open/tree-2", "open/tree-2-away"]),
    ]);
    rows
}

/// Other ways to the same files have the same answer.
#[rustfmt::skip]
fn aliases() -> Vec<Row> {
    let read: &[(&'static str, &'static [&'static str])] = &[
        ("by_its_full_path", &["read", "{here}/closed/alias/.env"]),
        ("below_the_root_link", &["read", "/proc/self/root{here}/closed/alias/.env"]),
        ("below_the_threads_root_link", &["read", "/proc/thread-self/root{here}/closed/alias/.env"]),
        ("below_the_directory_link", &["read", "/proc/self/cwd/closed/alias/.env"]),
        ("below_a_descriptor", &["read-below", "closed/alias", "/proc/self/fd", ".env"]),
        ("below_a_descriptor_in_dev", &["read-below", "closed/alias", "/dev/fd", ".env"]),
        ("with_dots_in_the_path", &["read", "closed/alias/../alias/./.env"]),
        ("by_a_link", &["read-by-link", "{here}/closed/alias/.env", "open/links/file"]),
        ("by_a_link_to_a_link", &["read-by-links", "{here}/closed/alias/.env", "open/links/chain"]),
        ("below_a_link_to_the_root", &["read-by-link-below", "/", "open/links/root", "{here}/closed/alias/.env"]),
        ("by_a_second_name_from_before", &["read", "open/second/name"]),
    ];
    let write: &[(&'static str, &'static [&'static str], &'static str)] = &[
        ("agent_cannot_write_a_protected_file_below_the_root_link", &["open-to-write", "/proc/self/root{here}/infra/alias/main.tf"], "EROFS"),
        ("agent_cannot_write_a_protected_file_below_the_directory_link", &["open-to-write", "/proc/self/cwd/infra/alias/main.tf"], "EROFS"),
        ("agent_cannot_write_a_protected_file_below_a_descriptor", &["write-below", "infra/alias", "/proc/self/fd", "main.tf"], "EROFS"),
        ("agent_cannot_write_a_protected_file_by_a_link", &["write-by-link", "{here}/infra/alias/main.tf", "open/links/write"], "EROFS"),
        ("agent_cannot_write_a_protected_file_by_reopening_it", &["reopen-to-write", "infra/alias/main.tf"], "EROFS"),
    ];
    let mut rows: Vec<Row> = read.iter()
        .map(|&(name, words)| row(name, Defence::HiddenMask, words, "decoy", Expect::Is("canary")))
        .collect();
    rows.extend(write.iter()
        .map(|&(name, words, inside)| row(name, Defence::ProtectedMask, words, inside, OK)));
    rows
}

/// What the jail's root has no name for.
#[rustfmt::skip]
fn of_the_host() -> Vec<Row> {
    let mut rows = vec![
        row("the_home_of_the_host_is_not_there", Defence::Root, &["read", "{dir}/home/.ssh/id_test"], "ENOENT", Expect::Is("canary")),
        row("the_record_is_not_there", Defence::Root, &["read", "{dir}/state/kvro-jail/index.jsonl"], "ENOENT", Expect::Is("other")),
        row("what_lies_beside_the_workspace_is_not_there", Defence::Root, &["list", "{dir}/spare"], "ENOENT", Expect::IsNot("ENOENT")),
        row("tmp_is_not_the_hosts", Defence::Root, &["read", "{temporary}"], "ENOENT", Expect::Is("canary")),
        row("no_process_of_the_host_is_there", Defence::PidNamespace, &["list-processes"], "few", Expect::IsNot("few")),
        row("only_harmless_devices_are_there", Defence::Root, &["list", "/dev"],
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero", Expect::IsNot("")),
        // Outside these would leave something behind.
        Row { control: Control::Twin(&["make-pipe", "open/made-1"], OK),
            ..row("agent_can_make_no_device", Defence::Landlock, &["make-device", "open/tree-1/device"], "EACCES", OK) },
        Row { control: Control::Twin(&["create", "open/made-2"], OK),
            ..row("the_root_has_only_what_is_listed", Defence::Root, &["create", "/kvro-escape"], "EROFS", OK) },
        Row { control: Control::Twin(&["create", "open/made-3"], OK),
            ..row("the_system_is_read_only", Defence::Root, &["create", "/usr/kvro-escape"], "EROFS", OK) },
    ];
    let root = |row: Row| Row { needs: &[Need::RootCaller], ..row };
    rows.extend([
        Row { control: Control::OutsideAsRoot(Expect::Is("other")),
            ..row("the_hosts_passwords_are_not_there", Defence::Root, &["read", "/etc/shadow"], "ENOENT", OK) },
        Row { control: Control::OutsideAsRoot(Expect::Is("canary")),
            ..root(row("agent_cannot_read_what_only_root_may_read", Defence::Identity, &["read", "{for-root}"], "EACCES", OK)) },
        Row { control: Control::OutsideAsRoot(Expect::IsNot("none")),
            ..row("nothing_that_is_closed_to_others_opens", Defence::Identity, &["not-for-others", "1000", "/etc", "/usr", "/opt", "/var", "/run"], "none", OK) },
        Row { control: Control::OutsideAsRoot(Expect::IsNot("ENOENT")),
            ..root(row("the_home_of_root_is_not_there", Defence::Root, &["list", "/root"], "ENOENT", OK)) },
        root(row("sockets_of_daemons_are_not_there", Defence::Root, &["connect-local", "{socket}"], "ENOENT", OK)),
        root(row("no_socket_is_anywhere", Defence::Root, &["sockets", "/run", "/var", "/tmp", "/dev", "/etc"], "none", Expect::IsNot("none"))),
    ]);
    rows
}

/// What configures the kernel or the machine.
#[rustfmt::skip]
fn of_the_kernel() -> Vec<Row> {
    let row = |name, words, inside, control| Row {
        control,
        ..row(name, Defence::ReadOnlyKernelFiles, words, inside, OK)
    };
    let as_root = Control::OutsideAsRoot;
    vec![
        row("no_setting_of_the_kernel_opens_for_writing", &["writable-below", "500", "/proc/sys"], "none", as_root(Expect::IsNot("none"))),
        row("nothing_in_sys_opens_for_writing", &["writable-below", "10", "/sys"], "none", as_root(Expect::IsNot("none"))),
        row("nothing_else_in_proc_opens_for_writing", &["writable-kernel-files"], "none", as_root(Expect::IsNot("none"))),
        // Neither root's nor on a writable mount; the kernel looks at the owner first.
        row("agent_cannot_name_a_core_handler", &["open-to-write", "/proc/sys/kernel/core_pattern"], "EACCES", as_root(OK)),
        Row { needs: &[Need::File("/proc/kcore")],
            ..row("agent_cannot_read_the_kernels_memory", &["read", "/proc/kcore"], "empty", as_root(Expect::Is("other"))) },
        row("agent_may_write_its_own_settings", &["open-to-write", "/proc/self/comm"], "ok", Control::Outside(OK)),
        row("there_are_no_control_groups_to_leave", &["mkdir", "/sys/fs/cgroup/kvro-escape"], "ENOENT", Control::Itself),
    ]
}

const FACTS: &[Fact] = &[
    Fact {
        name: "hidden_and_protected_files_are_unchanged",
        defence: Defence::ProtectedMask,
        needs: &[],
        check: unchanged,
    },
    Fact {
        name: "opening_a_hidden_file_is_on_record",
        defence: Defence::HiddenMask,
        needs: &[],
        check: on_record,
    },
    Fact {
        name: "nothing_of_ours_is_left_in_the_workspace",
        defence: Defence::Root,
        needs: &[],
        check: nothing_left,
    },
];

/// Content, mode, inode, link count and times of every closed file are what they were.
fn unchanged(played: &Played) -> anyhow::Result<()> {
    let is_closed = |path: &std::path::Path| {
        path.starts_with("infra") || path.starts_with(".git") || path.ends_with(".env")
    };
    let mut closed = 0;
    for (path, before) in played.before.iter().filter(|(path, _)| is_closed(path)) {
        closed += 1;
        let after =
            played.after.get(path).with_context(|| format!("{} is gone", path.display()))?;
        ensure!(before == after, "{} was {before:?} and is {after:?}", path.display());
    }
    ensure!(closed > 30, "only {closed} files were closed");
    let added = |path: &&std::path::PathBuf| is_closed(path) && !played.before.contains_key(*path);
    let added: Vec<_> = played.after.keys().filter(added).collect();
    ensure!(added.is_empty(), "new: {added:?}");
    Ok(())
}

fn on_record(played: &Played) -> anyhow::Result<()> {
    let opened = record::data_of(&played.entries, "fs.hidden_opened");
    let path = played.world.work().join("closed/read/.env");
    ensure!(
        opened.iter().any(|data| data["path"] == path.display().to_string()),
        "{} is not in {opened:?}",
        path.display()
    );
    // The control: nobody opened this one for reading.
    let untouched = played.world.work().join("closed/unlink/.env");
    ensure!(
        opened.iter().all(|data| data["path"] != untouched.display().to_string()),
        "{} was opened by nobody",
        untouched.display()
    );
    Ok(())
}

/// The agent's own files apart, which lie in `open` and `closed`, there is nothing new.
fn nothing_left(played: &Played) -> anyhow::Result<()> {
    let new = played.after.keys().filter(|path| !played.before.contains_key(*path));
    let ours: Vec<_> = new.filter(|path| !path.starts_with("open")).collect();
    ensure!(ours.is_empty(), "{ours:?}");
    Ok(())
}
