//! Everything that a plan is made from and that takes looking at the machine.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;

use anyhow::{Context, anyhow};
use kvro_proxy::RunCa;
use kvro_sandbox::{Mask, Stretch};

use super::door::{self, ExtraCa};
use crate::plan::{Bundle, Guarding, masks};
use crate::policy::Loaded;
use crate::surroundings::Surroundings;
use crate::workspace::{AccountConfig, HomeView, Survey, probe, scan};

/// What was looked up and made for one run.
#[derive(Debug)]
pub struct Kit {
    pub(super) view: HomeView,
    pub(super) survey: Survey,
    pub(super) masks: Vec<Mask>,
    /// The workspace first.
    pub(super) guards: Vec<Guarding>,
    pub(super) ca: RunCa,
    pub(super) extra_ca: ExtraCa,
    pub(super) bundle: Bundle,
    pub(super) door_ports: Vec<u16>,
}

impl Kit {
    /// Scans the workspace while the rest is looked up.
    pub(super) fn gather(
        surroundings: &Surroundings,
        loaded: &Loaded,
        workspace: &Path,
        command: Option<&OsStr>,
    ) -> anyhow::Result<Self> {
        let (net, now) = (&loaded.policy.net, jiff::Timestamp::now());
        thread::scope(|scope| {
            let files = &loaded.policy.files;
            let scanning =
                scope.spawn(move || scan(workspace, files, &AccountConfig::read(surroundings)));
            let granted: Vec<&Path> =
                files.read.iter().chain(&files.write).map(|entry| entry.value.as_path()).collect();
            let view = probe(surroundings, &loaded.profile, workspace, &granted, command)
                .with_repository(workspace, files);
            let extra_ca = ExtraCa::read(net)?;
            let ca = door::authority(net, now)?;
            let bundle = Bundle::new(ca.pem(), &extra_ca.pem);
            let survey = scanning
                .join()
                .map_err(|_panic| anyhow!("the scan of the workspace broke"))?
                .context("cannot tell what the policy closes")?;
            let masks = masks(workspace, &survey.matches);
            let stretch = match files.writable(workspace) {
                Some(_) => Stretch::ReadWrite,
                None => Stretch::ReadOnly,
            };
            let own = Guarding::workspace(workspace, &survey, now.as_second(), stretch);
            let kept = view.settings.iter().map(Guarding::settings);
            let guards = std::iter::once(own).chain(kept).collect::<Result<_, _>>()?;
            let door_ports = door::ports(net);
            Ok(Self { view, survey, masks, guards, ca, extra_ca, bundle, door_ports })
        })
    }
}
