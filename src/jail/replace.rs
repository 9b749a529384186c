//! Replaces a file of ours as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes beside the file and renames, so that a reader sees the old content or the new one. The
/// file is its owner's alone.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        // The error that matters is the one that is returned.
        drop(fs::remove_file(&beside));
    })
}
