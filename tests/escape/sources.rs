//! The way back from the code to its cases.
//!
//! Each case names its defence; here the sources are held to name a case at each place where a
//! defence is put in force, always in this form, so that a reader finds one from the other:
//!
//! `// Defence::Root: files::tmp_is_not_the_hosts.`

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use libtest_mimic::{Failed, Trial};
use walkdir::WalkDir;

use crate::cases;
use crate::row::Defence;

const MARK: &str = "// Defence::";

pub(crate) fn trials() -> [Trial; 2] {
    let trial = |name: &str, check: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || check().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    [
        trial("sources::every_case_that_the_code_names_is_there", named_cases),
        trial("sources::every_defence_is_named_in_the_code", named_defences),
    ]
}

/// A comment that names a case.
#[derive(Debug)]
struct Comment {
    place: String,
    defence: String,
    case: String,
}

/// A case counts for its own defence only.
fn named_cases() -> anyhow::Result<()> {
    let cases: BTreeMap<String, String> = defences().collect();
    let mut wrong = Vec::new();
    for Comment { place, defence, case } in comments()? {
        match cases.get(&case) {
            Some(of) if *of == defence => {}
            Some(of) => wrong.push(format!("{place}: {case} is about {of}, not {defence}")),
            None => wrong.push(format!("{place}: there is no case {case}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn named_defences() -> anyhow::Result<()> {
    let named: BTreeSet<String> = comments()?.into_iter().map(|comment| comment.defence).collect();
    let held = defences().map(|(_, defence)| defence);
    let unnamed: BTreeSet<String> = held.filter(|defence| !named.contains(defence)).collect();
    ensure!(unnamed.is_empty(), "no comment names a case of {unnamed:?}");
    Ok(())
}

/// Every case with its defence. No defence is missing: one without a case would not compile
/// without a warning.
fn defences() -> impl Iterator<Item = (String, String)> {
    cases::named()
        .filter(|(_, defence)| *defence != Defence::None)
        .map(|(case, defence)| (case, format!("{defence:?}")))
}

fn comments() -> anyhow::Result<Vec<Comment>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut comments = Vec::new();
    for entry in WalkDir::new(root.join("src")).sort_by_file_name() {
        let path = entry?.into_path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        for (above, line) in fs::read_to_string(&path)?.lines().enumerate() {
            let Some(words) = line.trim_start().strip_prefix(MARK) else { continue };
            let place = format!("{}:{}", path.strip_prefix(root)?.display(), above + 1);
            let (defence, case) = words
                .strip_suffix('.')
                .and_then(|words| words.split_once(": "))
                .with_context(|| format!("{place} is not of the form `{MARK}NAME: AREA::CASE.`"))?;
            comments.push(Comment { place, defence: defence.to_owned(), case: case.to_owned() });
        }
    }
    Ok(comments)
}
