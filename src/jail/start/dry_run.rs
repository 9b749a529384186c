//! `--dry-run`: the plan as a person reads it, and nothing run.

use std::io::Write;
use std::path::{Path, PathBuf};

use kvro_sandbox::{Content, HostFile, MaskKind, Mount, Plan, ShownAs, Stretch, refused_calls};

use super::kit::Kit;
use super::story::Request;
use crate::failure::Failure;
use crate::plan::{Caches, Layers, RootCaller, person};
use crate::report::harmless;
use crate::supervise::streams;

/// Prints what the jail of `request` would be made of.
///
/// The private layers are made in `scratch`, so that nothing is left behind.
pub fn dry_run(request: &Request<'_>, scratch: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let command = request.command.first().map(std::ffi::OsString::as_os_str);
    let kit = Kit::gather(request.surroundings, request.loaded, request.workspace, command)
        .map_err(Failure::setup)?;
    let layers = Layers::take(scratch, request.workspace).map_err(Failure::setup)?;
    let person = person(RootCaller::Substitute);
    let plan = super::jail::plan(request, &kit, &layers, streams(), &person, Caches::Layered)?;
    print(request, &plan, out).map_err(Failure::setup)
}

fn print(request: &Request<'_>, plan: &Plan, out: &mut dyn Write) -> std::io::Result<()> {
    let policy = &request.loaded.policy;
    let shown = |word: &std::ffi::OsString| harmless(&word.to_string_lossy()).to_string();
    let command: Vec<String> = request.command.iter().map(shown).collect();
    writeln!(out, "command    {}", command.join(" "))?;
    writeln!(out, "workspace  {}", request.workspace.display())?;
    writeln!(out, "profile    {}", request.loaded.profile.agent.name)?;
    for layer in &request.loaded.layers {
        writeln!(out, "policy     {}", layer.source)?;
    }
    let ids = plan.identity;
    writeln!(out, "user       uid {}, to the kernel uid {}", ids.inside.uid, ids.kernel.uid)?;
    writeln!(out, "\nfiles")?;
    for mount in &plan.mounts {
        writeln!(out, "  {}", describe(mount))?;
    }
    for mask in &plan.masks {
        let how = match mask.kind {
            MaskKind::Hidden { .. } => "hidden",
            MaskKind::Protected => "protected",
        };
        writeln!(out, "  {how:<11}{}", harmless(&mask.target.to_string_lossy()))?;
    }
    for guarded in &plan.guards {
        for view in &guarded.views {
            let dir: PathBuf = guarded.root.join(&view.path).components().collect();
            let names = view.names.iter().filter(|shown| shown.shown == ShownAs::Protected);
            for path in names.map(|shown| dir.join(&shown.name)) {
                writeln!(out, "  protected  {}", harmless(&path.to_string_lossy()))?;
            }
            writeln!(out, "  guarded    {}", harmless(&dir.to_string_lossy()))?;
        }
    }
    writeln!(out, "\nnetwork    {}, door on {:?}", policy.net.mode, plan.door_ports)?;
    for entry in &policy.net.allow {
        writeln!(out, "  allow    {} ({})", entry.value, entry.origin)?;
    }
    for entry in &policy.net.deny {
        writeln!(out, "  deny     {} ({})", entry.value, entry.origin)?;
    }
    writeln!(out, "\nenvironment")?;
    for (name, _) in &plan.command.env {
        writeln!(out, "  {}", harmless(&name.to_string_lossy()))?;
    }
    writeln!(out, "\nrefused system calls")?;
    for call in refused_calls() {
        writeln!(out, "  {:<20} {:<12} {}", call.name, call.scope, call.why)?;
    }
    Ok(())
}

fn describe(mount: &Mount) -> String {
    let show = |path: &Path| harmless(&path.to_string_lossy()).to_string();
    match mount {
        Mount::Bind { source, target, stretch, .. } => {
            let how = match stretch {
                Stretch::ReadOnly => "read-only",
                Stretch::ReadWrite => "read-write",
            };
            if source == target {
                format!("{how:<11}{}", show(target))
            } else {
                format!("{how:<11}{} (from {})", show(target), show(source))
            }
        }
        Mount::Overlay { lower, target, .. } => {
            format!("layered    {} (over {})", show(target), show(lower))
        }
        Mount::Tmpfs { target, bytes, .. } => {
            format!("memory     {} ({} MiB)", show(target), bytes >> 20)
        }
        Mount::Devices => "devices    /dev".to_owned(),
        Mount::Proc => "processes  /proc".to_owned(),
        Mount::Directory { target } => format!("directory  {}", show(target)),
        Mount::File { target, content: Content { host, own } } => {
            let host = host.as_ref().map(|HostFile(path)| format!("{} and ", show(path)));
            let host = host.unwrap_or_default();
            format!("made       {} ({host}{} bytes)", show(target), own.len())
        }
        Mount::Symlink { target, to } => format!("link       {} -> {}", show(target), show(to)),
        Mount::Alias { of, target } => format!("made       {} (as {})", show(target), show(of)),
    }
}
