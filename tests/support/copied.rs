//! A program's copy, which can be run at once.

use std::io;
use std::path::Path;
use std::process::Command;

/// Copies the program `from` to `to`, run bits included.
///
/// By another process: a thread that forks while this one holds the copy open for writing makes its
/// exec fail with `ETXTBSY` until that child has exec'd as well.
pub(crate) fn copy_program(from: &Path, to: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a test prepares its programs")]
    let mut copy = Command::new("cp");
    let copied = copy.arg("--").args([from, to]).output()?;
    if copied.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&copied.stderr).trim().to_owned()))
}
