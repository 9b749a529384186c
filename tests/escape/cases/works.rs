//! What must go on working inside, and what of it must not be seen outside.

use std::path::Path;

use anyhow::ensure;

use crate::area::{Area, Fact};
use crate::play::Played;
use crate::row::{Control, Defence, Expect, Probe, Row};

pub(super) fn area() -> Area {
    Area { name: "works", options: &[], env: &[], files: &[], rows: rows(), facts: FACTS }
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let works: &[(&'static str, &'static [&'static str], &'static str)] = &[
        ("threads_work", &["thread"], "ok"),
        ("children_and_pipes_work", &["pipe-from-child"], "ok"),
        ("shared_memory_works", &["shared-memory-file", "/dev/shm/kvro-escape"], "ok"),
        ("temporary_files_work", &["temporary-file", "/tmp/kvro-escape-private"], "ok"),
        ("programs_in_memory_work", &["run-from-memory"], "ok"),
        ("compilers_at_run_time_work", &["program-memory"], "ok"),
        ("local_sockets_work", &["local-socket", "open/socket"], "ok"),
        ("named_pipes_work", &["make-pipe", "open/pipe"], "ok"),
        ("locks_work", &["lock", "open/lock"], "ok"),
        ("watches_work", &["watch", "open"], "ok"),
        ("the_workspace_is_writable", &["create", "open/new"], "ok"),
        ("a_server_of_the_agents_own_answers", &["serve-and-connect", "127.0.0.1:18080", "127.0.0.1:18080"], "ok"),
        ("a_server_on_every_address_answers_on_the_loopback", &["serve-and-connect", "0.0.0.0:18080", "127.0.0.1:18080"], "ok"),
        ("names_of_the_loopback_resolve", &["look-up", "localhost"], "ok"),
        ("the_dead_are_buried", &["leave-zombies", "100"], "buried"),
        ("the_home_is_writable", &["temporary-file", "{dir}/home/kvro-escape"], "ok"),
    ];
    works.iter().map(|&(name, words, inside)| Row {
        name,
        defence: Defence::None,
        needs: &[],
        probe: Probe::Words(words),
        inside: Expect::Is(inside),
        control: Control::Itself,
    }).collect()
}

const FACTS: &[Fact] = &[
    Fact {
        name: "what_lies_in_memory_inside_is_not_on_the_host",
        defence: Defence::Root,
        needs: &[],
        check: nothing_outside,
    },
    Fact {
        name: "what_is_made_in_the_workspace_is_the_callers",
        defence: Defence::None,
        needs: &[],
        check: made_by_the_caller,
    },
];

fn nothing_outside(played: &Played) -> anyhow::Result<()> {
    let home = played.world.path("home/kvro-escape");
    for path in ["/tmp/kvro-escape-private", "/dev/shm/kvro-escape"].map(Path::new) {
        ensure!(!path.exists(), "{} is on the host", path.display());
    }
    ensure!(!home.exists(), "the home is not private");
    Ok(())
}

fn made_by_the_caller(played: &Played) -> anyhow::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let owner =
        |name: &str| Ok::<_, std::io::Error>(played.world.work().join(name).metadata()?.uid());
    let (workspace, made) = (owner("")?, owner("open/new")?);
    ensure!(workspace == made, "it belongs to {made}, the workspace to {workspace}");
    Ok(())
}
