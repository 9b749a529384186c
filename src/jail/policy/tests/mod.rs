//! The policy as its users meet it: texts, layers and decisions.

mod builtins;
mod layers;
mod mistakes;
mod widening;

use std::path::PathBuf;

use super::error::PolicyError;
use super::reader::{Anchors, Source};
use super::schema::{Draft, Extends, parse};

/// Reads `body` as `/w/kvro-jail.toml`.
fn draft(body: &str) -> Result<Draft, PolicyError> {
    let anchors = Anchors {
        workspace: PathBuf::from("/w"),
        home: PathBuf::from("/home/u"),
        file_dir: Some(PathBuf::from("/w")),
    };
    let source = Source { layer: "kvro-jail.toml".into(), body: body.into(), anchors };
    parse(&source, Extends::BuiltinOnly).map(|document| document.draft)
}
