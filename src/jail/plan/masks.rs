//! The masks over what a scan of the workspace found.

use std::path::Path;

use kvro_sandbox::{Mask, MaskKind};

use crate::workspace::{Kind, Match, Matches};

/// What a hidden file shows.
const DECOY: &str = "\
# kvro-jail: this file is hidden from the jail by the policy ([fs] hide).
# `kvro-jail explain path FILE`, outside of the jail, names the rule. Opening it is on record.
";

/// Masks for `matches` in `workspace`: what is protected first, so that what is hidden in there
/// lies on top.
#[must_use]
pub fn masks(workspace: &Path, matches: &Matches) -> Vec<Mask> {
    let mask = |found: &Match, kind: MaskKind| match (found.kind, &kind) {
        // What a protected link shows read-only is its target, a match of its own; there is nothing
        // to mount over the link itself.
        (Kind::Link, MaskKind::Protected) => None,
        // A decoy lies over a hidden link like over a file: the link cannot be replaced.
        (Kind::Link, MaskKind::Hidden { .. }) | (Kind::Dir | Kind::File, _) => {
            Some(Mask { target: workspace.join(&found.path), kind })
        }
    };
    let protected = matches.protected.iter().filter_map(|found| mask(found, MaskKind::Protected));
    let decoy = || MaskKind::Hidden { text: DECOY.to_owned() };
    let hidden = matches.hidden.iter().filter_map(|found| mask(found, decoy()));
    protected.chain(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_lies_over_what_is_protected() {
        let found = |path: &str, kind| Match { path: path.into(), kind };
        let matches = Matches {
            hidden: vec![found("infra/.env", Kind::File), found("link", Kind::Link)],
            protected: vec![found("infra", Kind::Dir), found("hooks", Kind::Link)],
        };
        assert_eq!(
            masks(Path::new("/w"), &matches),
            [
                Mask { target: "/w/infra".into(), kind: MaskKind::Protected },
                Mask {
                    target: "/w/infra/.env".into(),
                    kind: MaskKind::Hidden { text: DECOY.to_owned() }
                },
                Mask {
                    target: "/w/link".into(),
                    kind: MaskKind::Hidden { text: DECOY.to_owned() }
                },
            ]
        );
    }
}
