//! The arrows between the crates, read from cargo itself: who may depend on whom, and what the
//! crate with all the unsafe code pulls in.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

#[test]
fn arrows_between_the_crates_go_one_way() -> anyhow::Result<()> {
    let arrows = own_arrows(&metadata()?);
    assert_eq!(
        arrows,
        BTreeMap::from([
            (
                "kvro-jail".to_owned(),
                names(&["kvro-evidence", "kvro-ledger", "kvro-proxy", "kvro-sandbox"]),
            ),
            ("kvro-evidence".to_owned(), names(&["kvro-ledger"])),
            ("kvro-ledger".to_owned(), names(&[])),
            ("kvro-proxy".to_owned(), names(&["kvro-ledger"])),
            ("kvro-sandbox".to_owned(), names(&[])),
        ])
    );
    Ok(())
}

/// Whoever adds a line here adds code to the most privileged part of the program.
#[test]
fn sandbox_depends_on_few_crates_and_these_are_they() -> anyhow::Result<()> {
    let direct = shipped_dependencies(&metadata()?, "kvro-sandbox");
    insta::assert_snapshot!(direct.into_iter().collect::<Vec<_>>().join("\n"), @r"
    caps
    globset
    landlock
    libc
    nix
    postcard
    seccompiler
    serde
    serde_bytes
    thiserror
    ");
    Ok(())
}

fn metadata() -> anyhow::Result<Metadata> {
    let root = std::env::var("CARGO_MANIFEST_DIR").context("cargo runs this test")?;
    let metadata = MetadataCommand::new()
        .manifest_path(format!("{root}/Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".to_owned()])
        .exec()?;
    Ok(metadata)
}

/// Each workspace crate with the workspace crates it depends on, tests included: an arrow that
/// only a test needs still decides what can be built first.
fn own_arrows(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let own: BTreeSet<String> =
        metadata.workspace_packages().iter().map(|package| package.name.to_string()).collect();
    own.iter()
        .map(|name| {
            let arrows = all_dependencies(metadata, name).intersection(&own).cloned().collect();
            (name.clone(), arrows)
        })
        .collect()
}

/// The direct dependencies that end up in the program.
fn shipped_dependencies(metadata: &Metadata, package: &str) -> BTreeSet<String> {
    of(metadata, package, &[DependencyKind::Normal, DependencyKind::Build])
}

fn all_dependencies(metadata: &Metadata, package: &str) -> BTreeSet<String> {
    let kinds = [DependencyKind::Normal, DependencyKind::Build, DependencyKind::Development];
    of(metadata, package, &kinds)
}

fn of(metadata: &Metadata, package: &str, kinds: &[DependencyKind]) -> BTreeSet<String> {
    metadata
        .workspace_packages()
        .into_iter()
        .filter(|candidate| candidate.name.as_str() == package)
        .flat_map(|found| &found.dependencies)
        .filter(|dependency| kinds.contains(&dependency.kind))
        .map(|dependency| dependency.name.clone())
        .collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}
