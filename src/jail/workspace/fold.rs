//! Whether a filesystem takes a name in another case for the same.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether the filesystem of the directory `dir` does, as those of other systems do. Nothing is made
/// to find out: what is there is asked for by another name. Where nothing is, neither does.
#[must_use]
pub fn folds_case(dir: &Path) -> bool {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_same = |dir: &Path, a: &OsStr, b: &OsStr| {
        let inode = |name: &OsStr| {
            let metadata = fs::symlink_metadata(dir.join(name)).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        inode(a).is_some_and(|known| inode(b) == Some(known))
    };
    let inside = tells(&names.collect(), |a, b| is_same(dir, a, b));
    let from_above = || {
        let (above, own) = (dir.parent()?, BTreeSet::from([dir.file_name()?.to_owned()]));
        tells(&own, |a, b| is_same(above, a, b))
    };
    inside.or_else(from_above).unwrap_or(false)
}

/// Whether names fold, as the first says that has another case.
fn tells(names: &BTreeSet<OsString>, is_same: impl Fn(&OsStr, &OsStr) -> bool) -> Option<bool> {
    let (name, other) = names.iter().find_map(|name| Some((name, in_other_case(name)?)))?;
    // Two that differ in case alone are two.
    Some(!names.contains(&other) && is_same(name, &other))
}

fn in_other_case(name: &OsStr) -> Option<OsString> {
    let flip = |byte: &u8| match byte {
        b'a'..=b'z' => byte.to_ascii_uppercase(),
        _ => byte.to_ascii_lowercase(),
    };
    let other: Vec<u8> = name.as_bytes().iter().map(flip).collect();
    (other != name.as_bytes()).then(|| OsString::from_vec(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<OsString> {
        names.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_name_is_asked_for_in_its_other_case() {
        let folding = |a: &OsStr, b: &OsStr| a.eq_ignore_ascii_case(b) && a != b;
        assert_eq!(tells(&names(&["12", "Cargo.toml"]), folding), Some(true));
        assert_eq!(tells(&names(&["12", "Cargo.toml"]), |_, _| false), Some(false));
        assert_eq!(tells(&names(&["a", "A"]), folding), Some(false));
        assert_eq!(tells(&names(&["12", "_"]), folding), None);
        assert_eq!(tells(&names(&[]), folding), None);
        assert_eq!(in_other_case(OsStr::new("Ab.é1")), Some("aB.é1".into()));
    }

    #[test]
    fn the_filesystem_of_tests_does_not() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!folds_case(dir.path()));
        fs::write(dir.path().join("name"), "").unwrap();
        assert!(!folds_case(dir.path()));
        assert!(!folds_case(&dir.path().join("nowhere")));
    }
}
