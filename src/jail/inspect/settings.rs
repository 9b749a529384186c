//! Settings in files that an agent writes all the time, and that name programs in a few places.
//!
//! Such a file cannot be closed to the agent. What stands in those places is compared instead:
//! what is new there was perhaps put there to be run outside of any jail.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::policy::KeyPath;
use crate::workspace::{Watched, read_plain};

/// Larger files are not read.
const LARGEST: u64 = 64 << 20;

/// What a file says in the places where it names programs, by the way to each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    keys: Vec<KeyPath>,
    programs: BTreeMap<String, String>,
}

impl Settings {
    /// What `watched` says now. One that cannot be read says nothing.
    pub(super) fn of(watched: &Watched) -> Self {
        let keys = watched.keys.clone();
        let programs = programs(&watched.file.from, &keys).unwrap_or_default();
        Self { keys, programs }
    }

    /// What `file` says now and did not: the way there, and what it leads to.
    pub(super) fn new_in(&self, file: &Path) -> io::Result<Vec<(String, String)>> {
        let now = programs(file, &self.keys)?;
        Ok(now.into_iter().filter(|(way, what)| self.programs.get(way) != Some(what)).collect())
    }
}

fn programs(file: &Path, keys: &[KeyPath]) -> io::Result<BTreeMap<String, String>> {
    let text = match read_plain(file, OFlag::O_NOFOLLOW, LARGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        read => read?,
    };
    let value: Value = serde_json::from_slice(&text)?;
    let mut found = BTreeMap::new();
    for key in keys {
        collect(&value, &key.parts().collect::<Vec<_>>(), String::new(), &mut found);
    }
    Ok(found)
}

fn collect(value: &Value, way: &[&str], so_far: String, found: &mut BTreeMap<String, String>) {
    let Some((first, rest)) = way.split_first() else {
        found.insert(so_far, value.to_string());
        return;
    };
    let Value::Object(members) = value else { return };
    for (name, member) in members.iter().filter(|(name, _)| *first == "*" || name == first) {
        let is_plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let name = if is_plain { name.clone() } else { format!("{name:?}") };
        let way = if so_far.is_empty() { name } else { format!("{so_far}.{name}") };
        collect(member, rest, way, found);
    }
}
