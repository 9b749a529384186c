//! From files, flags and a command to the policy in force: the only part that reads files.
//!
//! `--policy` or the nearest `kvro-jail.toml` upwards from the workspace or the user's own file or
//! `builtin:default` is the policy. Unless the user trusted it, a project's file is met with the
//! user's own (else `builtin:default`), so that it can only tighten. The administrator's file caps
//! everything, flags included.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvro_ledger::event::PolicyLayer;
use kvro_proxy::rules::Decision;
use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::build::seal;
use super::builtin;
use super::error::{PolicyError, nearest};
use super::meet::meet;
use super::overlay::{Overlay, PolicyChoice};
use super::profile::{Profiles, unmet};
use super::reader::{Anchors, Source};
use super::rules::Policy;
use super::schema::{Base, Draft, Extends, parse};
use super::trust::{TrustStore, digest};
use super::warning::Warning;
use crate::surroundings::Surroundings;

/// The name of a project's policy.
pub const PROJECT_FILE: &str = "kvro-jail.toml";

/// The policy that is in force where no file says otherwise, and on which files build.
const DEFAULT: &str = "default";

const MAX_LEN: u64 = 1 << 20;

/// How far `extends` may go.
const MAX_DEPTH: usize = 8;

/// A policy in force and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub policy: Policy,
    /// Every text that had a say, the outermost authority first.
    pub layers: Vec<PolicyLayer>,
    /// What the caller should say on stderr.
    pub warnings: Vec<Warning>,
    pub profile: Profiles,
}

/// Loads the policy for running `command` in `workspace`, both as the caller resolved them.
pub fn load(
    surroundings: &Surroundings,
    workspace: &Path,
    overlay: &Overlay,
    profile: Option<&str>,
    command: Option<&OsStr>,
) -> Result<Loaded, PolicyError> {
    let profiles = Profiles::choose(profile, command)?;
    let mut reading = Reading { surroundings, workspace, layers: Vec::new() };
    let ceiling = reading.ceiling()?;
    let (mut policy, mut warnings) = reading.chosen(overlay)?;
    lay_under(&profiles, &mut policy);
    overlay.apply(&mut policy, &surroundings.cwd);
    if let Some(ceiling) = ceiling {
        let (held, lost) = meet(policy, &ceiling);
        policy = held;
        warnings.extend(lost.into_iter().map(Warning::AboveCeiling));
    }
    let rules = policy.net.rules();
    let allowed = |name: &_| matches!(rules.judge_name(name), Decision::Allow(_));
    warnings.extend(unmet(&profiles, allowed).into_iter().map(|entry| Warning::ServerNotAllowed {
        profile: profiles.agent.name.clone(),
        server: entry.value.to_string(),
    }));
    Ok(Loaded { policy, layers: reading.layers, warnings, profile: profiles })
}

/// Parses and resolves one file as a whole policy, the way `policy check` asks for.
pub fn check(
    surroundings: &Surroundings,
    workspace: &Path,
    choice: &PolicyChoice,
) -> Result<Policy, PolicyError> {
    let mut reading = Reading { surroundings, workspace, layers: Vec::new() };
    reading.by_choice(choice).map(seal)
}

/// The nearest project policy upwards from `workspace`, with its text.
pub fn find_project(workspace: &Path) -> Result<Option<(PathBuf, String)>, PolicyError> {
    for directory in workspace.ancestors() {
        let path = directory.join(PROJECT_FILE);
        if let Some(body) = read_file(&path)? {
            return Ok(Some((path, body)));
        }
    }
    Ok(None)
}

/// What the project's file asks for beyond what the user's own policy allows.
pub fn asked_beyond(
    surroundings: &Surroundings,
    workspace: &Path,
) -> Result<Vec<Warning>, PolicyError> {
    let mut reading = Reading { surroundings, workspace, layers: Vec::new() };
    let Some((path, body)) = find_project(workspace)? else {
        return Ok(Vec::new());
    };
    let (_, lost) = reading.met_with_user(&path, &body)?;
    Ok(lost)
}

/// The same, as long as the directory is not trusted: what is not in force.
pub fn asked_in_vain(
    surroundings: &Surroundings,
    workspace: &Path,
) -> Result<Vec<Warning>, PolicyError> {
    let mut reading = Reading { surroundings, workspace, layers: Vec::new() };
    reading.chosen(&Overlay::default()).map(|(_, warnings)| warnings)
}

/// One load: where files are looked for, and what was read so far.
struct Reading<'s> {
    surroundings: &'s Surroundings,
    workspace: &'s Path,
    layers: Vec<PolicyLayer>,
}

impl Reading<'_> {
    fn ceiling(&mut self) -> Result<Option<Draft>, PolicyError> {
        let path = self.surroundings.ceiling_file();
        let Some(body) = read_file(&path)? else {
            return Ok(None);
        };
        self.file(&path, &body, Extends::BuiltinOrFile, None, 0).map(Some)
    }

    /// The policy that the lookup finds, before profile, flags and ceiling.
    fn chosen(&mut self, overlay: &Overlay) -> Result<(Policy, Vec<Warning>), PolicyError> {
        if let Some(choice) = &overlay.policy {
            return Ok((seal(self.by_choice(choice)?), Vec::new()));
        }
        let Some((path, body)) = find_project(self.workspace)? else {
            return Ok((seal(self.user()?), Vec::new()));
        };
        let directory = path.parent().unwrap_or(Path::new("/"));
        let store = TrustStore::read(&self.surroundings.state_dir())?;
        if store.trusts(directory, body.as_bytes()) {
            let draft = self.file(&path, &body, Extends::BuiltinOnly, Some(DEFAULT), 0)?;
            return Ok((seal(draft), Vec::new()));
        }
        self.met_with_user(&path, &body)
    }

    fn met_with_user(
        &mut self,
        path: &Path,
        body: &str,
    ) -> Result<(Policy, Vec<Warning>), PolicyError> {
        let user = self.user()?.complete();
        let project = self.file(path, body, Extends::BuiltinOnly, Some(DEFAULT), 0)?;
        let (policy, lost) = meet(seal(project), &user);
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let lost = lost
            .into_iter()
            .map(|widening| Warning::Untrusted { widening, directory: directory.clone() });
        Ok((policy, lost.collect()))
    }

    fn user(&mut self) -> Result<Draft, PolicyError> {
        let path = self.surroundings.config_dir().join("policy.toml");
        match read_file(&path)? {
            Some(body) => self.file(&path, &body, Extends::BuiltinOrFile, Some(DEFAULT), 0),
            None => self.builtin(DEFAULT, 0),
        }
    }

    fn by_choice(&mut self, choice: &PolicyChoice) -> Result<Draft, PolicyError> {
        match choice {
            PolicyChoice::Builtin(name) => self.builtin(name, 0),
            PolicyChoice::File(path) => {
                let path = self.surroundings.cwd.join(path);
                let body = required(&path)?;
                self.file(&path, &body, Extends::BuiltinOrFile, Some(DEFAULT), 0)
            }
        }
    }

    fn builtin(&mut self, name: &str, depth: usize) -> Result<Draft, PolicyError> {
        let text = builtin::policy(name).ok_or_else(|| {
            let names = builtin::policy_names();
            let hint = match nearest(name, names.iter().copied()) {
                Some(word) => format!("did you mean `builtin:{word}`?"),
                None => format!("known: {}", names.join(", ")),
            };
            PolicyError::UnknownBuiltin { name: name.to_owned(), hint }
        })?;
        let source = self.source(format!("builtin:{name}"), text, None);
        self.text(&source, Extends::BuiltinOrFile, None, depth)
    }

    fn file(
        &mut self,
        path: &Path,
        body: &str,
        extends: Extends,
        implied: Option<&str>,
        depth: usize,
    ) -> Result<Draft, PolicyError> {
        let source = self.source(path.display().to_string(), body, path.parent());
        self.text(&source, extends, implied, depth)
    }

    /// One text and all that it builds on; `implied` is its base when it names none.
    fn text(
        &mut self,
        source: &Source,
        extends: Extends,
        implied: Option<&str>,
        depth: usize,
    ) -> Result<Draft, PolicyError> {
        let document = parse(source, extends)?;
        self.layers.push(PolicyLayer {
            source: source.layer.to_string(),
            sha256: digest(source.body.as_bytes()),
        });
        let implied = || implied.map(|name| Base::Builtin(name.to_owned())).into_iter().collect();
        let bases: Vec<Base> = document.extends.unwrap_or_else(implied);
        if depth == MAX_DEPTH && !bases.is_empty() {
            return Err(PolicyError::TooDeep(source.layer.to_string()));
        }
        let mut below = Draft::default();
        for base in bases {
            let base = match base {
                Base::Builtin(name) => self.builtin(&name, depth + 1)?,
                Base::File(path) => {
                    let body = required(&path)?;
                    self.file(&path, &body, extends, None, depth + 1)?
                }
            };
            below = base.over(below);
        }
        Ok(document.draft.over(below))
    }

    fn source(&self, layer: String, body: &str, file_dir: Option<&Path>) -> Source {
        let anchors = Anchors {
            workspace: self.workspace.to_owned(),
            home: self.surroundings.home.clone(),
            file_dir: file_dir.map(Path::to_owned),
        };
        Source { layer: layer.into(), body: Arc::from(body), anchors }
    }
}

/// Puts what the profiles pass and set under what the policy says, which so has the last word.
fn lay_under(profiles: &Profiles, policy: &mut Policy) {
    let pass: Vec<_> = profiles.iter().flat_map(|profile| profile.pass.iter().cloned()).collect();
    for list in &mut policy.env.pass {
        list.splice(0..0, pass.iter().cloned());
    }
    let set = profiles.iter().flat_map(|profile| profile.set.iter().cloned());
    policy.env.set.splice(0..0, set);
}

fn required(path: &Path) -> Result<String, PolicyError> {
    read_file(path)?.ok_or_else(|| PolicyError::Unreadable {
        path: path.to_owned(),
        cause: Errno::ENOENT.into(),
    })
}

/// The text of a policy file, `None` when there is none. Anything else that keeps it from being
/// read is an error: a policy that is there must be in force.
fn read_file(path: &Path) -> Result<Option<String>, PolicyError> {
    let unreadable = |cause| PolicyError::Unreadable { path: path.to_owned(), cause };
    // A FIFO by that name must not hold the launch up.
    let flags = (OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY).bits();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(cause) => return Err(unreadable(cause)),
    };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(PolicyError::NotAFile(path.to_owned()));
    }
    let mut body = String::new();
    let length = file.take(MAX_LEN + 1).read_to_string(&mut body).map_err(unreadable)?;
    if length as u64 > MAX_LEN {
        return Err(PolicyError::TooLong(path.to_owned()));
    }
    Ok(Some(body))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
