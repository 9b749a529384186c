//! A policy as it was typed: one file, every value parsed, nothing merged.
//!
//! A key that a file does not have stays `None`, since for a ceiling or a project "not said" and
//! "nothing" differ. Keys whose enforcement comes in a later version are refused by name.

use std::path::{Path, PathBuf};

use ipnet::IpNet;
use kvro_ledger::PicoUsd;
use kvro_proxy::{HostPattern, Server, ServerName};

use super::entry::Entry;
use super::error::{Mistake, PolicyError};
use super::globs::PathGlob;
use super::names::{Name, NamePattern, Variable};
use super::reader::{Section, Source, Value};
use super::rules::{InferenceServer, Level, NetMode, PriceRow, Redirect};
use super::units::{ByteSize, Cpus, Span};
use crate::limits::{OnLimit, UnknownPrice};

/// What one file says, or several along `extends`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Draft {
    pub(super) write: Option<Vec<Entry<PathBuf>>>,
    pub(super) read: Option<Vec<Entry<PathBuf>>>,
    pub(super) hide: Vec<Entry<PathGlob>>,
    pub(super) protect: Vec<Entry<PathGlob>>,
    pub(super) mode: Option<Entry<NetMode>>,
    pub(super) allow: Option<Vec<Entry<HostPattern>>>,
    pub(super) deny: Vec<Entry<HostPattern>>,
    pub(super) ports: Option<Vec<Entry<u16>>>,
    pub(super) connect_to: Option<Vec<Entry<Redirect>>>,
    pub(super) danger_private: Option<Vec<Entry<IpNet>>>,
    pub(super) extra_ca: Option<Vec<Entry<PathBuf>>>,
    pub(super) inference: Vec<Entry<InferenceServer>>,
    pub(super) limits: LimitsDraft,
    pub(super) memory: Option<Entry<ByteSize>>,
    pub(super) pids: Option<Entry<u64>>,
    pub(super) cpus: Option<Entry<Cpus>>,
    pub(super) require: Option<Entry<Level>>,
    pub(super) pass: Option<Vec<Entry<NamePattern>>>,
    pub(super) set: Option<Vec<Entry<Variable>>>,
    pub(super) prices: Option<Vec<Entry<PriceRow>>>,
}

/// `[limits]` as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LimitsDraft {
    pub(super) max_turns: Option<Entry<u64>>,
    pub(super) max_usd: Option<Entry<PicoUsd>>,
    pub(super) max_tokens: Option<Entry<u64>>,
    pub(super) max_context_tokens: Option<Entry<u64>>,
    pub(super) max_wall: Option<Entry<Span>>,
    pub(super) warn_at: Option<Entry<Vec<u8>>>,
    pub(super) on_limit: Option<Entry<OnLimit>>,
    pub(super) unknown_price: Option<Entry<UnknownPrice>>,
}

/// A file, and what it builds on.
#[derive(Debug)]
pub(super) struct Document {
    /// `None` when the file has no `extends`.
    pub(super) extends: Option<Vec<Base>>,
    pub(super) draft: Draft,
}

/// What a file builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Base {
    Builtin(String),
    File(PathBuf),
}

/// What may be said about a text's `extends`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extends {
    BuiltinOrFile,
    /// A project's trust covers its one file, so it may not lean on others.
    BuiltinOnly,
}

/// Counts and numbers that stay exact in JSON and in the agent's arithmetic.
const COUNT: std::ops::Range<u64> = 1..(1 << 53);

/// Reads one file.
pub(super) fn parse(source: &Source, extends: Extends) -> Result<Document, PolicyError> {
    source.read(|top| {
        let version = top.required("version")?;
        if version.number(0..u64::MAX)? != 1 {
            let hint = "this program reads version 1";
            return Err(version.problem(Mistake::Value, "unknown version").hint(hint).into());
        }
        let bases = top.take("extends").map(|value| bases(&value, extends)).transpose()?;
        let mut draft = Draft::default();
        if let Some(mut fs) = top.section("fs")? {
            files(&mut fs, &mut draft)?;
        }
        if let Some(mut net) = top.section("net")? {
            network(&mut net, &mut draft)?;
        }
        if let Some(mut limits) = top.section("limits")? {
            draft.limits = ceilings(&mut limits)?;
        }
        if let Some(mut resources) = top.section("resources")? {
            let pids = |value: &Value<'_>| value.number(1..4_194_305);
            draft.memory = one(&mut resources, "memory", |v| v.parsed(Mistake::Size))?;
            draft.pids = one(&mut resources, "pids", pids)?;
            draft.cpus = one(&mut resources, "cpus", |v| {
                let word = v.decimal()?;
                word.parse().map_err(|error| v.refusal(Mistake::Value, word, &error))
            })?;
            resources.finish()?;
        }
        if let Some(mut isolation) = top.section("isolation")? {
            draft.require = one(&mut isolation, "require", |v| v.parsed(Mistake::Value))?;
            isolation.finish()?;
        }
        if let Some(mut env) = top.section("env")? {
            draft.pass = many(&mut env, "pass", |v| v.parsed(Mistake::Value))?;
            draft.set = env.take("set").map(variables).transpose()?;
            env.finish()?;
        }
        if let Some(rows) = top.take("price") {
            draft.prices = Some(rows.items()?.iter().map(price).collect::<Result<_, _>>()?);
        }
        for later in ["secrets", "production", "alert", "pools"] {
            top.refuse(later)?;
        }
        Ok(Document { extends: bases, draft })
    })
}

fn files(fs: &mut Section<'_>, draft: &mut Draft) -> Result<(), PolicyError> {
    draft.write = many(fs, "write", path_in_workspace)?;
    draft.read = many(fs, "read", path_in_workspace)?;
    draft.hide = patterns(fs, "hide", &[])?;
    draft.protect = patterns(fs, "protect", &draft.hide)?;
    fs.finish()
}

/// The patterns under `key`, of which none may be in vain. `more` are those of this text that close
/// more than these.
fn patterns(
    fs: &mut Section<'_>,
    key: &'static str,
    more: &[Entry<PathGlob>],
) -> Result<Vec<Entry<PathGlob>>, PolicyError> {
    let mut earlier: Vec<(PathGlob, usize)> = Vec::new();
    let sound = |value: &Value<'_>| {
        let glob: PathGlob = value.parsed(Mistake::Glob)?;
        let quoted = |glob: &PathGlob| format!("{:?}", glob.to_string());
        let own = quoted(&glob);
        let refused = |what: String, hint: &str| {
            Err(PolicyError::from(value.problem(Mistake::Rule, what).hint(hint)))
        };
        for (other, line) in &earlier {
            if glob.is_opposite(other) {
                let what = format!("{own} says the opposite of {} in line {line}", quoted(other));
                return refused(what, "the last one wins: leave one of them out");
            }
            if let Some(dir) = glob.is_in_vain_after(other) {
                let dir = dir.display();
                let what = format!(
                    "{own} can never match: {} in line {line} covers {dir} as a whole",
                    quoted(other)
                );
                let hint = format!("write \"{dir}/**\" there, and parts of it can be taken back");
                return refused(what, &hint);
            }
        }
        if let Some(other) = more.iter().find(|other| glob.is_same(&other.value)) {
            let what =
                format!("{own} is hidden by line {}, and cannot be shown", other.origin.line);
            return refused(what, "what is hidden is protected as well: leave one of them out");
        }
        earlier.push((glob.clone(), value.origin().line));
        Ok(glob)
    };
    Ok(many(fs, key, sound)?.unwrap_or_default())
}

fn network(net: &mut Section<'_>, draft: &mut Draft) -> Result<(), PolicyError> {
    draft.mode = one(net, "mode", |v| v.parsed(Mistake::Value))?;
    draft.allow = many(net, "allow", |v| v.parsed(Mistake::Server))?;
    draft.deny = many(net, "deny", |v| v.parsed(Mistake::Server))?.unwrap_or_default();
    draft.ports = many(net, "ports", port)?;
    draft.connect_to = net.take("connect_to").map(redirects).transpose()?;
    draft.danger_private = many(net, "danger_private", address_block)?;
    draft.extra_ca = many(net, "extra_ca", path_beside_file)?;
    draft.inference = net.take("inference").map(inference).transpose()?.unwrap_or_default();
    for later in ["rule", "publish", "host_ports"] {
        net.refuse(later)?;
    }
    net.finish()
}

fn ceilings(limits: &mut Section<'_>) -> Result<LimitsDraft, PolicyError> {
    let read = LimitsDraft {
        max_turns: one(limits, "max_turns", |v| v.number(COUNT))?,
        max_usd: one(limits, "max_usd", |v| v.parsed(Mistake::Amount))?,
        max_tokens: one(limits, "max_tokens", |v| v.number(COUNT))?,
        max_context_tokens: one(limits, "max_context_tokens", |v| v.number(COUNT))?,
        max_wall: one(limits, "max_wall", |v| v.parsed(Mistake::Duration))?,
        warn_at: one(limits, "warn_at", percentages)?,
        on_limit: one(limits, "on_limit", |v| {
            word(v, &[("kill", OnLimit::Kill), ("deny", OnLimit::Deny)])
        })?,
        unknown_price: one(limits, "unknown_price", |v| {
            word(v, &[("deny", UnknownPrice::Deny), ("danger_allow", UnknownPrice::Allow)])
        })?,
    };
    limits.finish()?;
    Ok(read)
}

/// One `[[price]]`, with the keys of `policies/prices.toml`.
fn price(row: &Value<'_>) -> Result<Entry<PriceRow>, PolicyError> {
    let origin = row.origin();
    let mut table = row.clone().section("[[price]]".to_owned())?;
    let model = table.required("model")?.text()?.to_owned();
    let (input, output) = (rate(&table.required("input")?)?, rate(&table.required("output")?)?);
    let mut rate_of = |key| table.take(key).map(|value| rate(&value)).transpose();
    let (cache_read, cache_write) = (rate_of("cache_read")?, rate_of("cache_write")?);
    let (cache_write_long, web_search) = (rate_of("cache_write_long")?, rate_of("web_search")?);
    let mut count_of = |key| table.take(key).map(|value| value.number(COUNT)).transpose();
    let (context, max_output) = (count_of("context")?, count_of("max_output")?);
    let provider = table.take("provider").map(|v| v.text().map(str::to_owned)).transpose()?;
    let why = table.take("why").map(|why| why.text().map(Into::into)).transpose()?;
    table.finish()?;
    let value = PriceRow {
        model,
        provider,
        input,
        output,
        cache_read,
        cache_write,
        cache_write_long,
        web_search,
        context,
        max_output,
    };
    Ok(Entry { value, why, origin })
}

/// Dollars for a million units: finer than 6 digits is finer than a pico-dollar for one.
fn rate(value: &Value<'_>) -> Result<PicoUsd, PolicyError> {
    let rate: PicoUsd = value.parsed(Mistake::Amount)?;
    if !rate.pico().is_multiple_of(1_000_000) {
        let what = "a price for a million tokens has at most 6 digits behind the point";
        return Err(value.problem(Mistake::Amount, what).into());
    }
    Ok(rate)
}

fn bases(value: &Value<'_>, extends: Extends) -> Result<Vec<Base>, PolicyError> {
    value.items()?.iter().map(|item| base(item, extends)).collect()
}

fn base(item: &Value<'_>, extends: Extends) -> Result<Base, PolicyError> {
    let word = item.text()?;
    if let Some(name) = word.strip_prefix("builtin:") {
        if super::builtin::policy(name).is_none() {
            let hint = format!("known: {}", super::builtin::policy_names().join(", "));
            let what = format!("there is no built-in policy `{name}`");
            return Err(item.problem(Mistake::Extends, what).hint(hint).into());
        }
        return Ok(Base::Builtin(name.to_owned()));
    }
    let anchors = &item.source().anchors;
    match (extends, &anchors.file_dir) {
        (Extends::BuiltinOrFile, Some(dir)) => Ok(Base::File(anchors.absolute(word, dir))),
        (Extends::BuiltinOnly, _) | (Extends::BuiltinOrFile, None) => {
            let what = "only a built-in policy can be extended here";
            Err(item.problem(Mistake::Extends, what).hint("write `builtin:NAME`").into())
        }
    }
}

fn redirects(value: Value<'_>) -> Result<Vec<Entry<Redirect>>, PolicyError> {
    let mut table = value.section("[net.connect_to]".to_owned())?;
    let pairs = table.take_rest().into_iter().map(|key| {
        let from: Server = key.parsed(Mistake::Server)?;
        let entry = key.value.entry(|v| v.parsed(Mistake::Server))?;
        Ok(entry.map(|to| Redirect { from, to }))
    });
    pairs.collect()
}

fn inference(value: Value<'_>) -> Result<Vec<Entry<InferenceServer>>, PolicyError> {
    let mut table = value.section("[net.inference]".to_owned())?;
    let pairs = table.take_rest().into_iter().map(|key| {
        let server: ServerName = key.parsed(Mistake::Server)?;
        let provider = |v: &Value<'_>| v.parsed(Mistake::Value);
        let entry = key.value.entry(provider)?;
        Ok(entry.map(|provider| InferenceServer { server, provider }))
    });
    pairs.collect()
}

/// `[env.set]`, here and in profiles.
pub(super) fn variables(value: Value<'_>) -> Result<Vec<Entry<Variable>>, PolicyError> {
    let mut table = value.section("[env.set]".to_owned())?;
    let pairs = table.take_rest().into_iter().map(|key| {
        let Name(name) = key.parsed(Mistake::Value)?;
        let entry = key.value.entry(plain_text)?;
        Ok(entry.map(|value| Variable { name, value }))
    });
    pairs.collect()
}

/// A string that can stand in an environment.
fn plain_text(value: &Value<'_>) -> Result<String, PolicyError> {
    let text = value.text()?;
    if text.contains('\0') {
        return Err(value.problem(Mistake::Value, "a variable holds no zero byte").into());
    }
    Ok(text.to_owned())
}

fn path_in_workspace(value: &Value<'_>) -> Result<PathBuf, PolicyError> {
    let anchors = &value.source().anchors;
    path(value, &anchors.workspace)
}

fn path_beside_file(value: &Value<'_>) -> Result<PathBuf, PolicyError> {
    let anchors = &value.source().anchors;
    path(value, anchors.file_dir.as_deref().unwrap_or(&anchors.workspace))
}

fn path(value: &Value<'_>, base: &Path) -> Result<PathBuf, PolicyError> {
    let word = value.text()?;
    let refused = |why: &str| value.refusal(Mistake::Path, word, &why);
    if word.is_empty() || word.contains('\0') {
        return Err(refused("a path is not empty"));
    }
    if word.starts_with('~') && word != "~" && !word.starts_with("~/") {
        return Err(refused("`~` stands only for your own home"));
    }
    if word.contains(['*', '?', '[']) {
        return Err(refused("a grant names one directory or file, without wildcards"));
    }
    let path = value.source().anchors.absolute(word, base);
    if path == Path::new("/") {
        return Err(refused("it would open the whole machine"));
    }
    Ok(path)
}

fn address_block(value: &Value<'_>) -> Result<IpNet, PolicyError> {
    let word = value.text()?;
    let advice = "an address block is written like 10.0.0.0/8 or 127.0.0.1/32";
    word.parse::<IpNet>()
        .map(|block| block.trunc())
        .map_err(|_cause| value.refusal(Mistake::Server, word, &advice))
}

fn port(value: &Value<'_>) -> Result<u16, PolicyError> {
    let number = value.number(1..65_536)?;
    u16::try_from(number).map_err(|_cause| value.expected("a port"))
}

fn percentages(value: &Value<'_>) -> Result<Vec<u8>, PolicyError> {
    let percent = |item: &Value<'_>| {
        let number = item.number(1..101)?;
        u8::try_from(number).map_err(|_cause| item.expected("a percentage"))
    };
    let mut all = value.items()?.iter().map(percent).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn word<T: Copy>(value: &Value<'_>, known: &[(&str, T)]) -> Result<T, PolicyError> {
    let typed = value.text()?;
    known.iter().find(|(word, _)| *word == typed).map(|&(_, meaning)| meaning).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|&(word, _)| word).collect();
        let hint = format!("one of: {}", words.join(", "));
        value.problem(Mistake::Value, format!("unknown word {typed:?}")).hint(hint).into()
    })
}

fn one<T>(
    section: &mut Section<'_>,
    key: &'static str,
    parse: impl FnOnce(&Value<'_>) -> Result<T, PolicyError>,
) -> Result<Option<Entry<T>>, PolicyError> {
    section.take(key).map(|value| value.entry(parse)).transpose()
}

/// An array of entries under `key`.
pub(super) fn many<T>(
    section: &mut Section<'_>,
    key: &'static str,
    parse: impl FnMut(&Value<'_>) -> Result<T, PolicyError>,
) -> Result<Option<Vec<Entry<T>>>, PolicyError> {
    section.take(key).map(|value| value.entries(parse)).transpose()
}
