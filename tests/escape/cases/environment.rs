//! The caller's environment: what is not listed stays outside, and in nobody's sight inside.

use std::fs;
use std::path::Path;

use anyhow::ensure;

use crate::area::{Area, Fact};
use crate::play::Played;
use crate::row::{Control, Defence, Expect, Probe, Row};

/// A value that must be nowhere inside and nowhere on record.
const SECRET: &str = "kvro-value-of-a-secret";
/// As a prisoner gets it, so that its own command line does not hold it.
const SECRET_BACKWARDS: &str = "terces-a-fo-eulav-orvk";

#[rustfmt::skip]
const ENV: &[(&str, &str)] = &[
    ("KVRO_TEST_SECRET", SECRET),
    ("AWS_ACCESS_KEY_ID", SECRET), ("AWS_SECRET_ACCESS_KEY", SECRET), ("GITHUB_TOKEN", SECRET),
    ("LD_PRELOAD", "/nonexistent/kvro.so"), ("LD_LIBRARY_PATH", "/nonexistent"),
    ("BASH_ENV", "/nonexistent"), ("ENV", "/nonexistent"), ("NODE_OPTIONS", "--inspect"),
    ("PYTHONSTARTUP", "/nonexistent"), ("PERL5OPT", "-d"), ("GIT_DIR", "/nonexistent"),
    ("GIT_SSH_COMMAND", "/nonexistent"), ("SSLKEYLOGFILE", "/nonexistent/keys"),
    ("HTTPS_PROXY", "http://127.0.0.1:1"), ("SSH_AUTH_SOCK", "/nonexistent"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent"), ("XDG_RUNTIME_DIR", "/nonexistent"),
    ("DISPLAY", ":0"), ("KUBECONFIG", "/nonexistent"), ("DOCKER_HOST", "unix:///nonexistent"),
];

pub(super) fn area() -> Area {
    Area { name: "environment", options: &[], env: ENV, files: &[], rows: rows(), facts: FACTS }
}

/// A row that the variable `$name` stays outside.
macro_rules! stays_outside {
    ($($name:literal)*) => {
        [$(Row {
            name: concat!($name, "_stays_outside"),
            defence: Defence::EnvironmentList,
            needs: &[],
            probe: Probe::Words(&["variable", $name]),
            inside: Expect::Is("not set"),
            control: Control::Outside(Expect::IsNot("not set")),
        }),*]
    };
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    let mut rows = stays_outside![
        "KVRO_TEST_SECRET" "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "GITHUB_TOKEN" "LD_PRELOAD"
        "LD_LIBRARY_PATH" "BASH_ENV" "ENV" "NODE_OPTIONS" "PYTHONSTARTUP" "PERL5OPT" "GIT_DIR"
        "GIT_SSH_COMMAND" "SSLKEYLOGFILE" "HTTPS_PROXY" "SSH_AUTH_SOCK" "DBUS_SESSION_BUS_ADDRESS"
        "XDG_RUNTIME_DIR" "DISPLAY" "KUBECONFIG" "DOCKER_HOST" "XDG_STATE_HOME"
    ].to_vec();
    rows.extend([
        Row {
            name: "no_process_shows_the_callers_secrets",
            defence: Defence::HiddenPid1,
            needs: &[],
            probe: Probe::Words(&["look-for-backwards", SECRET_BACKWARDS]),
            inside: Expect::Is("not found"),
            control: Control::Outside(Expect::Is("found")),
        },
        Row {
            name: "what_is_listed_comes_in",
            defence: Defence::None,
            needs: &[],
            probe: Probe::Words(&["variable", "LANG"]),
            inside: Expect::Is("C.UTF-8"),
            control: Control::Outside(Expect::Is("C.UTF-8")),
        },
        Row {
            name: "a_jail_says_that_it_is_one",
            defence: Defence::None,
            needs: &[],
            probe: Probe::Words(&["variable", "KVRO_JAIL"]),
            inside: Expect::Is("1"),
            control: Control::Outside(Expect::Is("not set")),
        },
    ]);
    rows
}

const FACTS: &[Fact] = &[Fact {
    name: "no_secret_of_the_caller_is_on_record",
    defence: Defence::EnvironmentList,
    needs: &[],
    check: not_on_record,
}];

fn not_on_record(played: &Played) -> anyhow::Result<()> {
    let mut read = 0;
    search(&played.world.state(), &mut read)?;
    ensure!(read > 0, "nothing is on record");
    Ok(())
}

fn search(directory: &Path, read: &mut usize) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            search(&path, read)?;
        } else if metadata.is_file() {
            *read += 1;
            let bytes = fs::read(&path)?;
            let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            ensure!(!found, "{} holds it", path.display());
        }
    }
    Ok(())
}
