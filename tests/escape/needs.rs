//! What a case needs of the machine, and what becomes of it where that is missing.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::identity::{Identity, new_command};
use crate::tools;

/// Something that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    UserNamespaces,
    /// A Landlock of this version.
    Landlock(u32),
    /// Somebody must be root outside to set the case up.
    RootCaller,
    /// The case is about a caller who is root.
    AsRoot,
    /// 32-bit programs run.
    Ia32,
    Keyrings,
    /// Cargo and rustc.
    Toolchain,
    /// Python's `venv`, with the pip that it installs.
    PythonEnvironments,
    /// A file of the kernel's that it has or has not.
    File(&'static str),
}

/// What every jail of level `full` needs.
pub(crate) const FULL: [Need; 2] = [Need::UserNamespaces, Need::Landlock(3)];

impl Need {
    /// Why the case cannot run for `identity`, if it cannot.
    pub(crate) fn lacking(self, identity: Identity) -> Option<String> {
        match self {
            Self::UserNamespaces => {
                static ANSWERS: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
                let place = &ANSWERS[usize::from(identity == Identity::Root)];
                let answer = place.get_or_init(|| outside(identity, &["unshare-user"]));
                (answer != "ok").then(|| format!("no user namespaces {identity}: {answer}"))
            }
            Self::Landlock(version) => {
                let abi = kvro_sandbox::landlock_abi();
                (abi < version).then(|| format!("Landlock is at version {abi}, not {version}"))
            }
            Self::RootCaller => (!Identity::available().contains(&Identity::Root))
                .then(|| "only root can set this up".to_owned()),
            Self::AsRoot => (identity != Identity::Root)
                .then(|| "this is about a caller who is root".to_owned()),
            Self::Ia32 => {
                static ANSWER: OnceLock<String> = OnceLock::new();
                let answer = ANSWER.get_or_init(|| outside(identity, &["passes-32-bit"]));
                (answer != "passes").then(|| "this kernel runs no 32-bit programs".to_owned())
            }
            Self::Keyrings => Self::File("/proc/keys").lacking(identity),
            Self::Toolchain => toolchain().is_none().then(|| "there is no rustc".to_owned()),
            Self::PythonEnvironments => {
                let said = run("/usr/bin/python3", &["-c", "import venv, ensurepip"]);
                said.is_none().then(|| "Python has no venv with ensurepip".to_owned())
            }
            Self::File(path) => {
                (!Path::new(path).exists()).then(|| format!("this kernel has no {path}"))
            }
        }
    }

    /// Whether KVRO_REQUIRE makes its lack a failure: what the level needs, not what a kernel was
    /// built with or who the caller is.
    fn is_required(self) -> bool {
        match self {
            Self::UserNamespaces | Self::Landlock(_) => true,
            Self::RootCaller
            | Self::AsRoot
            | Self::Ia32
            | Self::Keyrings
            | Self::Toolchain
            | Self::PythonEnvironments
            | Self::File(_) => false,
        }
    }
}

/// Where the Rust toolchain is.
pub(crate) fn toolchain() -> Option<PathBuf> {
    let path = PathBuf::from(run("rustc", &["--print", "sysroot"])?.trim_end());
    path.join("bin/cargo").exists().then_some(path)
}

/// What a program of the host says, if it ends well.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let ran = new_command(program.as_ref()).args(args).output().ok()?;
    ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Why a case cannot run.
#[derive(Debug)]
pub(crate) enum Missing {
    /// Skip it by name.
    Skip(String),
    /// KVRO_REQUIRE says that it must run.
    Fail(String),
}

/// The first of `needs` that is missing.
pub(crate) fn missing(needs: &[Need], identity: Identity) -> Option<Missing> {
    needs.iter().find_map(|need| {
        let why = need.lacking(identity)?;
        let insists = std::env::var_os("KVRO_REQUIRE").is_some_and(|value| !value.is_empty());
        Some(if insists && need.is_required() { Missing::Fail(why) } else { Missing::Skip(why) })
    })
}

/// What a probe answers outside of any jail.
fn outside(identity: Identity, words: &[&str]) -> String {
    let ran = identity
        .command(tools::probe())
        .and_then(|mut command| Ok(command.arg(crate::prisoner::ARGUMENT).args(words).output()?));
    match ran {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim_end().to_owned(),
        Err(error) => format!("{error:#}"),
    }
}
