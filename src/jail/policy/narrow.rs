//! The part that two grants share, for each kind of grant.

use std::path::PathBuf;

use ipnet::IpNet;
use kvro_proxy::HostPattern;

/// Things that have no parts: shared only when they are the same.
pub(super) fn same<T: Clone + PartialEq>(one: &T, other: &T) -> Option<T> {
    (one == other).then(|| one.clone())
}

/// The deeper of two paths, when one lies in the other.
pub(super) fn narrower_path(one: &PathBuf, other: &PathBuf) -> Option<PathBuf> {
    if one.starts_with(other) {
        Some(one.clone())
    } else {
        other.starts_with(one).then(|| other.clone())
    }
}

/// The smaller of two address blocks, when one lies in the other.
pub(super) fn narrower_block(one: &IpNet, other: &IpNet) -> Option<IpNet> {
    if other.contains(one) { Some(*one) } else { one.contains(other).then_some(*other) }
}

/// The servers that both rules allow, when one rule can say it.
pub(super) fn narrower_host(one: &HostPattern, other: &HostPattern) -> Option<HostPattern> {
    let (names, wider) = if covers_names(other, one) {
        (one, other)
    } else if covers_names(one, other) {
        (other, one)
    } else {
        return None;
    };
    let web = |port: u16| matches!(port, 80 | 443);
    match (names.port(), wider.port()) {
        (own, theirs) if own == theirs => Some(names.clone()),
        (Some(port), None) if web(port) => Some(names.clone()),
        // A rule without a port is a rule for 80 and 443; one of them is left.
        (None, Some(port)) if web(port) => format!("{names}:{port}").parse().ok(),
        (Some(_) | None, Some(_) | None) => None,
    }
}

fn covers_names(wide: &HostPattern, narrow: &HostPattern) -> bool {
    let is_wild = |rule: &HostPattern| rule.to_string().starts_with("*.");
    if !is_wild(narrow) {
        return wide.covers_name(narrow.base());
    }
    is_wild(wide) && (wide.base() == narrow.base() || narrow.base().is_below(wide.base()))
}

#[expect(clippy::ptr_arg, reason = "passed where a grant of any type is shown")]
pub(super) fn shown_path(path: &PathBuf) -> String {
    path.display().to_string()
}
