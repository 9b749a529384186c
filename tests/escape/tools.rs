//! The program under test and the prisoner, copied to where everybody may run them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::copied::copy_program;

static PLACE: OnceLock<PathBuf> = OnceLock::new();

/// Outside of /tmp, which is private in a jail.
pub(crate) const SCRATCH: &str = "/var/tmp";

/// Copies both programs; they are gone with what this returns.
///
/// The build directory may be closed to the ordinary user.
pub(crate) fn lay_out() -> anyhow::Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("kvro-escape-bin-").tempdir_in(SCRATCH)?;
    let built = std::env::var_os("KVRO_BIN").map(PathBuf::from);
    let built = built.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_kvro-jail")));
    copy(&built, &directory.path().join("kvro-jail"))?;
    copy(&std::env::current_exe()?, &directory.path().join("probe"))?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    PLACE.get_or_init(|| directory.path().to_owned());
    Ok(directory)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    copy_program(from, to).with_context(|| format!("no program {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Where both are.
pub(crate) fn place() -> &'static Path {
    PLACE.get().map_or(Path::new("/nonexistent"), PathBuf::as_path)
}

pub(crate) fn program() -> PathBuf {
    place().join("kvro-jail")
}

pub(crate) fn probe() -> PathBuf {
    place().join("probe")
}
