//! The state directory: planted files are refused, and what they point at is left alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use kvro_ledger::state::StateError;
use kvro_ledger::{Clock, IndexError, Ledger, OpenError, Redactions, StateDir, recover};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};

use crate::support::{Host, clock, host, run_id};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Why a run cannot be opened beside what was planted.
fn refusal(host: &Host) -> StateError {
    match Ledger::open(&host.state, run_id(1), Clock::system(), Redactions::none()) {
        Err(OpenError::Index { cause: IndexError::State(why), .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn everything_of_ours_is_private_to_its_owner() {
    let (host, run) = (host(), run_id(1));
    let (ledger, _) = host.open(&run);
    ledger.close().unwrap();
    let found = ["", "runs", "index.jsonl", "index.head"].map(|name| mode(&host.path.join(name)));
    assert_eq!(found, [0o700, 0o700, 0o600, 0o600]);
    let found = [host.state.run_dir(&run), host.state.ledger_path(&run)].map(|path| mode(&path));
    assert_eq!(found, [0o700, 0o600]);
}

#[test]
fn a_directory_that_others_can_read_is_closed_to_them() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    StateDir::existing(dir.path()).unwrap_err();
    assert_eq!(mode(dir.path()), 0o755, "looking changes nothing");
    StateDir::open(dir.path()).unwrap();
    assert_eq!(mode(dir.path()), 0o700);
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for bits in [0o770, 0o707] {
        fs::set_permissions(dir.path(), Permissions::from_mode(bits)).unwrap();
        let refused = StateDir::open(dir.path());
        assert!(
            matches!(refused, Err(StateError::Writable { mode, .. }) if mode == bits),
            "{refused:?}"
        );
    }
}

#[test]
fn a_link_in_place_of_a_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (elsewhere, planted) = (dir.path().join("elsewhere"), dir.path().join("planted"));
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &planted).unwrap();
    assert!(matches!(StateDir::open(&planted), Err(StateError::WrongKind { .. })));
    let state = dir.path().join("state");
    StateDir::open(&state).unwrap();
    fs::remove_dir(state.join("runs")).unwrap();
    symlink(&elsewhere, state.join("runs")).unwrap();
    assert!(matches!(StateDir::open(&state), Err(StateError::WrongKind { .. })));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_link_in_place_of_a_file_is_refused_and_its_target_kept() {
    for name in ["index.jsonl", "index.head"] {
        let host = host();
        let target = host.path.join("bashrc");
        fs::write(&target, "alias ls=ls\n").unwrap();
        symlink(&target, host.path.join(name)).unwrap();
        assert!(matches!(refusal(&host), StateError::WrongKind { .. }), "{name}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "alias ls=ls\n");
    }
}

#[test]
fn a_hard_link_in_place_of_a_file_is_refused_and_its_target_kept() {
    let host = host();
    let target = host.path.join("bashrc");
    fs::write(&target, "alias ls=ls\n").unwrap();
    fs::hard_link(&target, host.path.join("index.jsonl")).unwrap();
    assert!(matches!(refusal(&host), StateError::Linked { .. }));
    assert_eq!(fs::read_to_string(&target).unwrap(), "alias ls=ls\n");
}

#[test]
fn a_fifo_or_directory_in_place_of_a_file_is_refused_at_once() {
    let host = host();
    let index = host.path.join("index.jsonl");
    mkfifo(&index, Mode::S_IRWXU).unwrap();
    assert!(matches!(refusal(&host), StateError::WrongKind { .. }));
    fs::remove_file(&index).unwrap();
    fs::create_dir(&index).unwrap();
    Ledger::open(&host.state, run_id(2), clock(), Redactions::none()).unwrap_err();
}

#[test]
fn a_fifo_does_not_hold_up_whoever_reads() {
    let host = host();
    mkfifo(&host.path.join("index.jsonl"), Mode::S_IRWXU).unwrap();
    let refused = recover(&host.state, &clock());
    assert!(matches!(refused, Err(IndexError::State(StateError::WrongKind { .. }))), "{refused:?}");
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let host = host();
    let index = host.path.join("index.jsonl");
    fs::write(&index, "").unwrap();
    fs::set_permissions(&index, Permissions::from_mode(0o660)).unwrap();
    assert!(matches!(refusal(&host), StateError::Writable { mode: 0o660, .. }));
}

#[test]
fn what_belongs_to_somebody_else_is_refused() {
    if !Uid::effective().is_root() {
        return; // Only root can give a directory away.
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65_534), None).unwrap();
    let refused = StateDir::open(dir.path());
    assert!(matches!(refused, Err(StateError::WrongOwner { owner: 65_534, .. })), "{refused:?}");
}

#[test]
fn where_there_is_no_ledger_looking_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kvro-jail");
    let missing = StateDir::existing(&path).unwrap_err();
    assert!(missing.is_missing());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
