//! The launch, with the two ways around what a filesystem may lack.
//!
//! Neither way weakens a promise silently: what is in force is in `isolation.applied`.

use std::os::fd::BorrowedFd;

use kvro_sandbox::{Host, LaunchError, Plan, Stage, Starting, Step};

use super::kit::Kit;
use super::story::{Desk, Request};
use crate::failure::Failure;
use crate::plan::{Caches, Ingredients, Layers, Person, RootCaller, compose, person};
use crate::supervise::Streams;

/// A jail that waits to go, and what it was made as.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) starting: Starting,
    pub(super) plan: Plan,
    pub(super) person: Person,
    pub(super) caches: Caches,
}

/// Composes and launches; the first attempt uses `early`. `keep` is called with each pid 1 before
/// its jail is made.
///
/// Where the workspace's filesystem cannot be idmapped, a root caller's agent keeps root's kernel
/// uid under another name; where there is no overlay, caches are read-only.
pub(super) fn bring_up<K>(
    request: &Request<'_>,
    kit: &Kit,
    layers: &Layers,
    streams: Streams,
    early: Option<Stage>,
    mut keep: impl FnMut(&Plan, BorrowedFd<'_>) -> Result<K, Failure>,
    desk: &mut Desk<'_>,
) -> Result<(Launched, K), Failure> {
    let mut early = early;
    let (mut root, mut caches) = (RootCaller::Substitute, Caches::Layered);
    loop {
        let person = person(root);
        let plan = plan(request, kit, layers, streams, &person, caches)?;
        // A stage that could not be started early is tried again, where its error is told.
        let stage = early.take().map_or_else(Stage::start, Ok);
        let launched = stage.and_then(|mut stage| {
            let kept = keep(&plan, stage.pid_1()?);
            Ok((stage.launch(&plan, request.run.as_str())?, kept))
        });
        match launched {
            Ok((starting, kept)) => {
                return Ok((Launched { starting, plan, person, caches }, kept?));
            }
            Err(LaunchError::Step { step: Step::MapOwners(path), .. })
                if root == RootCaller::Substitute =>
            {
                root = RootCaller::Renamed;
                let what = format!("{} cannot be idmapped", path.display());
                desk.say.warning(
                    desk.notes,
                    &what,
                    "run as an ordinary user, or on another filesystem",
                );
            }
            Err(LaunchError::Step { step: Step::Overlay(path), .. })
                if caches == Caches::Layered =>
            {
                caches = Caches::ReadOnly;
                let what = format!("no overlay over {}: caches are read-only", path.display());
                desk.say.warning(desk.notes, &what, "load the kernel's overlay module");
            }
            Err(error) => {
                return Err(Failure::launch(error, &Host::probe(), request.surroundings));
            }
        }
    }
}

/// The plan that would be launched first.
pub(super) fn plan(
    request: &Request<'_>,
    kit: &Kit,
    layers: &Layers,
    streams: Streams,
    person: &Person,
    caches: Caches,
) -> Result<Plan, Failure> {
    compose(Ingredients {
        run: request.run,
        surroundings: request.surroundings,
        policy: &request.loaded.policy,
        workspace: request.workspace,
        view: &kit.view,
        layers,
        caches,
        person,
        bundle: &kit.bundle,
        masks: kit.masks.clone(),
        guards: kit.guards.iter().map(|guarding| guarding.guarded.clone()).collect(),
        door_ports: kit.door_ports.clone(),
        streams,
        command: request.command,
    })
    .map_err(Failure::setup)
}
