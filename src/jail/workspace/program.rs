//! Which files a command is: the name that is typed, the links it leads through, and what lies
//! beside it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::real::real_path;

/// More links than this are a loop, as the kernel has it.
const MAX_LINKS: usize = 40;

/// A command found on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// From the name that was found to the file it leads to.
    chain: Vec<PathBuf>,
}

/// Finds `command` as a shell would: by its path, or on the caller's `PATH`.
pub(super) fn find(command: &OsStr, cwd: &Path, path: &[PathBuf]) -> Option<Program> {
    let candidates: Vec<PathBuf> = if Path::new(command).components().count() > 1 {
        vec![cwd.join(command)]
    } else {
        path.iter().map(|directory| directory.join(command)).collect()
    };
    let found = candidates.into_iter().find(|candidate| is_program(candidate))?;
    Some(Program { chain: links(found) })
}

impl Program {
    /// What has to be visible for it to run: each file of the chain, and the package of a script
    /// that lies in one.
    pub(super) fn parts(&self) -> Vec<PathBuf> {
        let package = |file: &PathBuf| {
            let in_modules = |above: &&Path| above.file_name() == Some(OsStr::new("node_modules"));
            let package = file.ancestors().filter(in_modules).last();
            let directory = file.parent().filter(|dir| dir.file_name() == Some(OsStr::new("bin")));
            package.or(directory).map_or_else(|| file.clone(), Path::to_owned)
        };
        self.chain.iter().map(package).collect()
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn links(first: PathBuf) -> Vec<PathBuf> {
    let mut chain = vec![first];
    while let (true, Some(Ok(target))) = (chain.len() < MAX_LINKS, chain.last().map(fs::read_link))
    {
        let from = chain.last().and_then(|link| link.parent()).unwrap_or(Path::new("/"));
        // The parent's real path, since `..` in a link counts from there.
        let from = real_path(from).unwrap_or_else(|_| from.to_owned());
        let next = from.join(target);
        let named = next.parent().and_then(|parent| real_path(parent).ok());
        match (named, next.file_name()) {
            (Some(parent), Some(name)) => chain.push(parent.join(name)),
            _ => break,
        }
    }
    chain
}
