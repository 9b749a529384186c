//! A control group of the jail's own, where a delegated cgroup v2 tree is there.
//!
//! Delegation is what systemd gives with `Delegate=yes`: the supervisor's own group is writable and
//! its controllers can be handed on. The supervisor moves into a leaf of it, since a group with
//! processes cannot hand controllers on (cgroups(7), "no internal processes").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Resources;

/// The jail's group; removed when dropped.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a group named `name` with the ceilings of `resources`; `None` where nothing is
    /// delegated that could hold them.
    pub(crate) fn make(name: &str, resources: &Resources) -> Option<Self> {
        let own =
            own_group(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)?;
        Self::below(&own, name, resources).ok()
    }

    fn below(own: &Path, name: &str, resources: &Resources) -> io::Result<Self> {
        let wanted = controllers(resources);
        let offered = fs::read_to_string(own.join("cgroup.controllers"))?;
        if !wanted
            .iter()
            .all(|(controller, ..)| offered.split_whitespace().any(|o| o == *controller))
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let leaf = own.join("kvro-supervisor");
        make_directory(&leaf)?;
        fs::write(leaf.join("cgroup.procs"), "0")?;
        for (controller, ..) in &wanted {
            fs::write(own.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
        let group = Self(own.join(format!("kvro-{name}")));
        make_directory(&group.0)?;
        for (_, file, value) in wanted {
            fs::write(group.0.join(file), value)?;
        }
        Ok(group)
    }

    /// Moves the process `pid`, and so all its later children, into the group.
    pub(crate) fn adopt(&self, pid: i32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // An empty group that stays behind holds nothing and is made again by name.
        drop(fs::remove_dir(&self.0));
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// What holds each ceiling: controller, file, value.
fn controllers(resources: &Resources) -> Vec<(&'static str, &'static str, String)> {
    const PERIOD_US: u64 = 100_000;
    let mut wanted = Vec::new();
    if let Some(bytes) = resources.memory {
        wanted.push(("memory", "memory.max", bytes.to_string()));
        wanted.push(("memory", "memory.swap.max", "0".to_owned()));
    }
    if let Some(pids) = resources.pids {
        // The jail's pid 1 counts as well.
        wanted.push(("pids", "pids.max", (pids + 1).to_string()));
    }
    if let Some(millicpus) = resources.millicpus {
        let quota = millicpus * PERIOD_US / 1000;
        wanted.push(("cpu", "cpu.max", format!("{quota} {PERIOD_US}")));
    }
    wanted
}

/// This process's group in the unified tree, from the text of `/proc/self/cgroup`.
fn own_group(mount: &Path, memberships: &str) -> Option<PathBuf> {
    let path = memberships.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount.join(path)).filter(|own| own.join("cgroup.controllers").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ceiling_has_its_controller_and_value() {
        let resources = Resources { memory: Some(1 << 30), pids: Some(10), millicpus: Some(1500) };
        assert_eq!(
            controllers(&resources),
            [
                ("memory", "memory.max", "1073741824".to_owned()),
                ("memory", "memory.swap.max", "0".to_owned()),
                ("pids", "pids.max", "11".to_owned()),
                ("cpu", "cpu.max", "150000 100000".to_owned()),
            ]
        );
    }

    #[test]
    fn a_tree_that_offers_no_controller_is_not_used() {
        let own = tempfile::tempdir().unwrap();
        fs::write(own.path().join("cgroup.controllers"), "cpuset io\n").unwrap();
        let resources = Resources { pids: Some(10), ..Resources::default() };
        let made = Cgroup::below(own.path(), "run", &resources);
        assert_eq!(made.map(drop).map_err(|e| e.kind()), Err(io::ErrorKind::Unsupported));
        assert!(!own.path().join("kvro-supervisor").exists());
    }

    #[test]
    fn the_ceilings_are_written_where_the_controllers_are_offered() {
        let own = tempfile::tempdir().unwrap();
        fs::write(own.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let resources = Resources { pids: Some(10), ..Resources::default() };
        let group = Cgroup::below(own.path(), "run", &resources).unwrap();
        let read = |file: &str| fs::read_to_string(own.path().join(file)).unwrap();
        assert_eq!(read("kvro-run/pids.max"), "11");
        assert_eq!(read("cgroup.subtree_control"), "+pids");
        assert_eq!(read("kvro-supervisor/cgroup.procs"), "0");
        drop(group);
    }
}
