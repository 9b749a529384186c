//! Puts the plan together.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kvro_ledger::RunId;
use kvro_sandbox::{Command, Guarded, Mask, MaskKind, Mount, Owner, Plan, Resources, Stretch};

use super::certificates::Bundle;
use super::environment::{environment, home, logical_directory};
use super::etc::etc;
use super::guard::shows;
use super::identity::Person;
use super::layers::{LayerError, Layers};
use super::system;
use crate::policy::Policy;
use crate::supervise::Streams;
use crate::surroundings::Surroundings;
use crate::workspace::{HomeView, Shown};

/// What a plan is made from.
#[derive(Debug)]
pub struct Ingredients<'i> {
    pub run: &'i RunId,
    pub surroundings: &'i Surroundings,
    pub policy: &'i Policy,
    pub workspace: &'i Path,
    pub view: &'i HomeView,
    pub layers: &'i Layers,
    pub caches: Caches,
    pub person: &'i Person,
    pub bundle: &'i Bundle,
    pub masks: Vec<Mask>,
    pub guards: Vec<Guarded>,
    pub door_ports: Vec<u16>,
    pub streams: Streams,
    pub command: &'i [OsString],
}

/// How the host's caches are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caches {
    /// Writable, in a layer over the host's.
    Layered,
    /// As on the host, read-only: where there is no overlay.
    ReadOnly,
}

/// The plan of a run.
pub fn compose(from: Ingredients<'_>) -> Result<Plan, LayerError> {
    let home = home(from.surroundings, from.view);
    let mut mounts = system::trees();
    mounts.extend(etc(from.person, &home, from.bundle));
    mounts.extend(system::scratch());
    mounts.extend(user_mounts(&from, &home)?);
    mounts.extend(logical_name(&from));
    let (program, args) = from.command.split_first().map_or_else(
        || (OsString::new(), Vec::new()),
        |(program, args)| (program.clone(), args.to_vec()),
    );
    let env = environment(
        from.surroundings,
        from.policy,
        from.view,
        from.person,
        from.workspace,
        from.run,
    );
    let resources = from.policy.resources;
    Ok(Plan {
        mounts,
        masks: masks_beside(from.masks, &from.guards),
        guards: from.guards,
        door_ports: from.door_ports,
        streams: from.streams.kinds,
        terminal: from.streams.size,
        resources: Resources {
            memory: resources.memory.map(|size| size.0),
            pids: resources.pids,
            millicpus: resources.cpus.map(|cpus| cpus.thousandths.into()),
        },
        command: Command { program, args, env, cwd: from.workspace.to_owned() },
        ..Plan::closed(from.person.identity)
    })
}

/// The masks that the view leaves to be made: it shows what is protected read-only by itself.
fn masks_beside(masks: Vec<Mask>, guards: &[Guarded]) -> Vec<Mask> {
    let is_shown = |mask: &Mask| guards.iter().any(|guarded| shows(guarded, &mask.target));
    let needed = |mask: &Mask| mask.kind != MaskKind::Protected || !is_shown(mask);
    masks.into_iter().filter(needed).collect()
}

/// The workspace by the name that the caller knows it by, when links lead to it: a link inside as
/// well, so that masks hold by both names.
fn logical_name(from: &Ingredients<'_>) -> Option<Mount> {
    let logical = logical_directory(from.surroundings, from.workspace)?;
    let to = from.workspace.to_owned();
    Some(Mount::Symlink { target: logical.to_owned(), to })
}

/// What is the user's, outer directories before what lies in them.
fn user_mounts(from: &Ingredients<'_>, home: &Path) -> Result<Vec<Mount>, LayerError> {
    let mut mounts = vec![(home.to_owned(), private(from.person, &from.layers.home, home))];
    let mut add = |at: &Path, mount: Mount| mounts.push((at.to_owned(), mount));
    for shown in &from.view.read {
        add(&shown.at, bind(shown, Stretch::ReadOnly, Owner::AsIs));
    }
    for shown in &from.view.keep {
        add(&shown.at, bind(shown, Stretch::ReadWrite, from.person.owner_of(&shown.from)));
    }
    for shown in &from.view.caches {
        let mount = match from.caches {
            Caches::ReadOnly => bind(shown, Stretch::ReadOnly, Owner::AsIs),
            Caches::Layered => Mount::Overlay {
                lower: shown.from.clone(),
                layer: from.layers.cache(&shown.from)?,
                target: shown.at.clone(),
                owner: from.person.owner_of(&shown.from),
            },
        };
        add(&shown.at, mount);
    }
    for entry in &from.policy.files.read {
        add(&entry.value, system::read_only(&entry.value));
    }
    if from.policy.files.writable(from.workspace).is_none() {
        add(from.workspace, system::read_only(from.workspace));
    }
    for entry in &from.policy.files.write {
        // A grant above the workspace is a grant of the workspace: nothing above it is opened.
        let at =
            if from.workspace.starts_with(&entry.value) { from.workspace } else { &entry.value };
        let shown = Shown { at: at.to_owned(), from: at.to_owned() };
        add(at, bind(&shown, Stretch::ReadWrite, from.person.owner_of(at)));
    }
    mounts.sort_by_key(|(at, _)| at.components().count());
    mounts.dedup_by(|(a, _), (b, _)| a == b);
    Ok(mounts.into_iter().map(|(_, mount)| mount).collect())
}

fn private(person: &Person, source: &Path, target: &Path) -> Mount {
    let (source, target) = (source.to_owned(), target.to_owned());
    let owner = person.owner_of(&source);
    Mount::Bind { source, target, stretch: Stretch::ReadWrite, owner }
}

fn bind(shown: &Shown, stretch: Stretch, owner: Owner) -> Mount {
    let (source, target): (PathBuf, PathBuf) = (shown.from.clone(), shown.at.clone());
    Mount::Bind { source, target, stretch, owner }
}
