//! Where an agent may work.
//!
//! A workspace is open to the agent, so it must not be a place that holds more than work: the
//! machine's own trees, the user's home, or anything that contains what this program keeps.

use std::io;
use std::path::{Path, PathBuf};

use super::real::real_path;
use crate::surroundings::Surroundings;

/// Never a workspace, though directories below them may be one.
const TOO_WIDE: &[&str] = &[
    "/",
    "/home",
    "/root",
    "/tmp",
    "/var",
    "/var/tmp",
    "/var/lib",
    "/usr",
    "/usr/local",
    "/opt",
    "/srv",
    "/mnt",
    "/media",
    "/run",
    "/run/user",
    "/dev/shm",
    "/nix",
    "/nix/store",
    "/snap",
];

/// Never a workspace, and nothing below them either.
const THE_MACHINES: &[&str] = &[
    "/proc",
    "/sys",
    "/etc",
    "/boot",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
];

/// Homes of keys: what works in there reads them.
const KEYS: &[&str] = &[".ssh", ".gnupg", ".aws", ".kube", ".docker", ".password-store"];

/// A directory that no agent may work in.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("cannot open the workspace {}", path.display())]
    Unreachable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("the workspace {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("the workspace {} is part of the system", .0.display())]
    System(PathBuf),
    #[error("the workspace {} is the home directory or contains it", .0.display())]
    Home(PathBuf),
    #[error("the workspace {} holds keys", .0.display())]
    Keys(PathBuf),
    #[error("the workspace {} and this program's own {} contain one another", path.display(), own.display())]
    Own { path: PathBuf, own: PathBuf },
    #[error("{} cannot be shown: it and this program's own {} contain one another", path.display(), own.display())]
    ShowsOwn { path: PathBuf, own: PathBuf },
    #[error("{} cannot be shown: a private home takes its place", .0.display())]
    ShowsHome(PathBuf),
}

impl PlaceError {
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } | Self::NotADirectory(_) => {
                "name an existing directory with -C, or change into it"
            }
            Self::System(_) | Self::Home(_) | Self::Keys(_) | Self::Own { .. } => {
                "work in a project's own directory, or name one with -C"
            }
            Self::ShowsOwn { .. } | Self::ShowsHome(_) => {
                "name the directories below it that are needed"
            }
        }
    }
}

/// Follows `path` to the directory it names and refuses one that no agent may work in.
pub fn settle(surroundings: &Surroundings, path: &Path) -> Result<PathBuf, PlaceError> {
    let asked = surroundings.cwd.join(path);
    let unreachable = |cause| PlaceError::Unreachable { path: asked.clone(), cause };
    let place = real_path(&asked).map_err(unreachable)?;
    if !place.is_dir() {
        return Err(PlaceError::NotADirectory(place));
    }
    // Defence::Place: place::the_home_is_no_workspace.
    let home = really(&surroundings.home);
    // A home of `/` (some containers) or none at all must not open every path.
    if home.starts_with(&place) {
        return Err(PlaceError::Home(place));
    }
    let is_device = place.starts_with("/dev") && !place.starts_with("/dev/shm");
    if is_device
        || TOO_WIDE.iter().any(|wide| place == Path::new(wide))
        || THE_MACHINES.iter().any(|tree| place.starts_with(tree))
    {
        return Err(PlaceError::System(place));
    }
    if KEYS.iter().any(|keys| place.starts_with(home.join(keys))) {
        return Err(PlaceError::Keys(place));
    }
    for own in [surroundings.state_dir(), surroundings.config_dir()] {
        let own = really(&own);
        if own.starts_with(&place) || place.starts_with(&own) {
            return Err(PlaceError::Own { path: place, own });
        }
    }
    Ok(place)
}

/// Refuses a path that the policy shows and that no jail may show: this program's own directories,
/// and what holds the home, whose place a private one takes.
pub fn grantable(surroundings: &Surroundings, path: &Path) -> Result<(), PlaceError> {
    let place = really(path);
    for own in [surroundings.state_dir(), surroundings.config_dir()] {
        let own = really(&own);
        if own.starts_with(&place) || place.starts_with(&own) {
            return Err(PlaceError::ShowsOwn { path: place, own });
        }
    }
    if really(&surroundings.home).starts_with(&place) {
        return Err(PlaceError::ShowsHome(place));
    }
    Ok(())
}

/// The real path as far as it exists: what is not there yet is taken by name.
fn really(path: &Path) -> PathBuf {
    let mut rest = PathBuf::new();
    for there in path.ancestors() {
        if let Ok(real) = real_path(there) {
            rest = path.strip_prefix(there).map_or(rest, Path::to_owned);
            return real.join(rest);
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::Host;
    use super::*;

    fn refusal(host: &Host, path: &Path) -> &'static str {
        match settle(&host.surroundings, path) {
            Ok(_) => "none",
            Err(PlaceError::Unreachable { .. }) => "unreachable",
            Err(PlaceError::NotADirectory(_)) => "not a directory",
            Err(PlaceError::System(_)) => "system",
            Err(PlaceError::Home(_)) => "home",
            Err(PlaceError::Keys(_)) => "keys",
            Err(PlaceError::Own { .. }) => "own",
            Err(PlaceError::ShowsOwn { .. } | PlaceError::ShowsHome(_)) => "shows",
        }
    }

    #[test]
    fn a_project_below_the_home_is_a_workspace() {
        let host = Host::new();
        assert_eq!(settle(&host.surroundings, Path::new(".")).unwrap(), host.surroundings.cwd);
    }

    #[test]
    fn places_that_hold_more_than_work_are_refused() {
        let host = Host::new();
        let home = host.surroundings.home.clone();
        fs::create_dir_all(home.join(".ssh/sub")).unwrap();
        for (path, why) in [
            (home.clone(), "home"),
            (host.root.path().to_owned(), "home"),
            ("/".into(), "home"),
            ("/tmp".into(), "home"),
            ("/usr".into(), "system"),
            ("/etc".into(), "system"),
            ("/proc/self".into(), "system"),
            ("/usr/bin".into(), "system"),
            ("/dev".into(), "system"),
            (home.join(".ssh/sub"), "keys"),
            (home.join("nowhere"), "unreachable"),
        ] {
            assert_eq!(refusal(&host, &path), why, "{}", path.display());
        }
    }

    #[test]
    fn what_contains_the_state_or_lies_in_it_is_refused_before_it_exists() {
        let mut host = Host::new();
        let home = host.surroundings.home.clone();
        fs::create_dir_all(home.join(".local")).unwrap();
        assert_eq!(refusal(&host, &home.join(".local")), "own");
        host.surroundings.state_home = home.join("work/state");
        assert_eq!(refusal(&host, &home.join("work")), "own");
        fs::create_dir_all(host.surroundings.state_dir().join("runs")).unwrap();
        assert_eq!(refusal(&host, &host.surroundings.state_dir().join("runs")), "own");
    }

    #[test]
    fn a_link_to_the_home_is_the_home() {
        let host = Host::new();
        let link = host.root.path().join("link");
        std::os::unix::fs::symlink(&host.surroundings.home, &link).unwrap();
        assert_eq!(refusal(&host, &link), "home");
    }

    #[test]
    fn a_home_that_is_a_link_is_followed() {
        let mut host = Host::new();
        let link = host.root.path().join("link");
        std::os::unix::fs::symlink(&host.surroundings.home, &link).unwrap();
        let home = std::mem::replace(&mut host.surroundings.home, link);
        assert_eq!(refusal(&host, &home), "home");
    }

    #[test]
    fn neither_the_own_state_nor_the_home_can_be_shown() {
        let host = Host::new();
        let home = host.surroundings.home.clone();
        let shows = |path: &Path| grantable(&host.surroundings, path).is_ok();
        let state = host.surroundings.state_dir();
        for path in [state.join("runs"), state, home.join(".local"), home.clone(), "/".into()] {
            assert!(!shows(&path), "{}", path.display());
        }
        assert!(shows(&host.root.path().join("elsewhere")));
        assert!(shows(&home.join("other")));
    }
}
