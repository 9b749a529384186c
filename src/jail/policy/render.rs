//! A policy in force as text: TOML with the line behind each entry, and JSON.

use std::fmt::{self, Display, Write};

use serde_json::{Value, json};

use super::entry::Entry;
use super::globs::GlobList;
use super::names::NameList;
use super::rules::Policy;
use super::units::Span;
use crate::limits::{OnLimit, UnknownPrice};

impl Policy {
    /// The policy as TOML; comments name the line behind each entry. Where several authorities
    /// restrict the same, the lists that the format has no room for are comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::from("version = 1\n");
        let page = &mut text;
        heading(page, "fs");
        list(page, "write", self.files.write.iter().map(|e| noted(quoted(e.value.display()), e)));
        list(page, "read", self.files.read.iter().map(|e| noted(quoted(e.value.display()), e)));
        lists(page, "hide", &self.files.hide.lists, glob_lines);
        lists(page, "protect", &self.files.protect.lists, glob_lines);
        heading(page, "net");
        self.single(page, "net.mode", Some(quoted(self.net.mode)));
        list(page, "allow", self.net.allow.iter().map(|e| noted(quoted(&e.value), e)));
        list(page, "deny", self.net.deny.iter().map(|e| noted(quoted(&e.value), e)));
        list(page, "ports", self.net.ports.iter().map(|e| noted(e.value.to_string(), e)));
        let private = self.net.danger_private.iter().map(|e| noted(quoted(e.value), e));
        list(page, "danger_private", private);
        let extra = self.net.extra_ca.iter().map(|e| noted(quoted(e.value.display()), e));
        list(page, "extra_ca", extra);
        let pairs = self.net.connect_to.iter();
        table(page, "net.connect_to", pairs.map(|e| pair(&e.value.from, &e.value.to, e)));
        let pairs = self.net.inference.iter();
        table(page, "net.inference", pairs.map(|e| pair(&e.value.server, e.value.provider, e)));
        heading(page, "limits");
        for (key, value) in self.limit_words() {
            self.single(page, key, value);
        }
        heading(page, "resources");
        self.single(page, "resources.memory", self.resources.memory.map(quoted));
        self.single(page, "resources.pids", self.resources.pids.map(|n| n.to_string()));
        self.single(page, "resources.cpus", self.resources.cpus.map(|n| n.to_string()));
        heading(page, "isolation");
        self.single(page, "isolation.require", Some(quoted(self.require)));
        heading(page, "env");
        lists(page, "pass", &self.env.pass, name_lines);
        let pairs = self.env.set.iter();
        table(page, "env.set", pairs.map(|e| pair(&e.value.name, &e.value.value, e)));
        for entry in &self.prices {
            let row = &entry.value;
            put(page, format_args!("\n[[price]] # {}\n", entry.origin));
            put(page, format_args!("model = {}\n", quoted(&row.model)));
            put(page, format_args!("input = \"{}\"\noutput = \"{}\"\n", row.input, row.output));
        }
        text
    }

    /// The policy for programs: each entry with its origin and reason.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let globs = |lists: &[GlobList]| -> Vec<Value> {
            lists.iter().map(|list| array(list, |glob| json!(glob.to_string()))).collect()
        };
        let limits: serde_json::Map<String, Value> = self
            .limit_words()
            .into_iter()
            .map(|(key, value)| {
                let word = value.map(|value| value.trim_matches('"').to_owned());
                (key.trim_start_matches("limits.").to_owned(), json!(word))
            })
            .collect();
        json!({
            "fs": {
                "write": array(&self.files.write, |path| json!(path.display().to_string())),
                "read": array(&self.files.read, |path| json!(path.display().to_string())),
                "hide": globs(&self.files.hide.lists),
                "protect": globs(&self.files.protect.lists),
            },
            "net": {
                "mode": self.net.mode.to_string(),
                "allow": array(&self.net.allow, |rule| json!(rule.to_string())),
                "deny": array(&self.net.deny, |rule| json!(rule.to_string())),
                "ports": array(&self.net.ports, |port| json!(port)),
                "connect_to": array(&self.net.connect_to, |redirect| json!({
                    "from": redirect.from.to_string(), "to": redirect.to.to_string(),
                })),
                "danger_private": array(&self.net.danger_private, |block| json!(block.to_string())),
                "extra_ca": array(&self.net.extra_ca, |path| json!(path.display().to_string())),
                "inference": array(&self.net.inference, |server| json!({
                    "server": server.server.to_string(), "provider": server.provider.to_string(),
                })),
            },
            "limits": limits,
            "resources": {
                "memory_bytes": self.resources.memory.map(|size| size.0),
                "pids": self.resources.pids,
                "cpus": self.resources.cpus.map(|cpus| cpus.to_string()),
            },
            "isolation": { "require": self.require.to_string() },
            "env": {
                "pass": self.env.pass.iter().map(|list| array(list, |name| json!(name.to_string())))
                    .collect::<Vec<_>>(),
                // Values may be secrets that a flag carried.
                "set": array(&self.env.set, |variable| json!(variable.name)),
            },
            "prices": array(&self.prices, |row| json!(row.model)),
        })
    }

    /// Every ceiling under its name in TOML, as TOML writes it.
    fn limit_words(&self) -> [(&'static str, Option<String>); 8] {
        let limits = &self.limits;
        let count = |count: Option<u64>| count.map(|count| count.to_string());
        let percent: Vec<String> = limits.warn_at.iter().map(ToString::to_string).collect();
        [
            ("limits.max_turns", count(limits.max_turns)),
            ("limits.max_usd", limits.max_usd.map(quoted)),
            ("limits.max_tokens", count(limits.max_tokens)),
            ("limits.max_context_tokens", count(limits.max_context_tokens)),
            ("limits.max_wall", limits.max_wall.map(|wall| quoted(Span(wall)))),
            ("limits.warn_at", Some(format!("[{}]", percent.join(", ")))),
            ("limits.on_limit", Some(quoted(on_limit(limits.on_limit)))),
            ("limits.unknown_price", Some(quoted(unknown_price(limits.unknown_price)))),
        ]
    }

    /// One single-valued key, left out where nothing is said.
    fn single(&self, page: &mut String, key: &str, value: Option<String>) {
        let Some(value) = value else { return };
        let name = key.rsplit('.').next().unwrap_or(key);
        match self.origins.get(key) {
            Some(origin) => put(page, format_args!("{name} = {value} # {origin}\n")),
            None => put(page, format_args!("{name} = {value}\n")),
        }
    }
}

const fn on_limit(word: OnLimit) -> &'static str {
    match word {
        OnLimit::Kill => "kill",
        OnLimit::Deny => "deny",
    }
}

const fn unknown_price(word: UnknownPrice) -> &'static str {
    match word {
        UnknownPrice::Deny => "deny",
        UnknownPrice::Allow => "danger_allow",
    }
}

/// As TOML quotes a string.
fn quoted(word: impl Display) -> String {
    toml::Value::String(word.to_string()).to_string()
}

fn noted<T>(word: String, entry: &Entry<T>) -> String {
    format!("{word}, # {}", entry.origin)
}

fn pair<T>(key: impl Display, value: impl Display, entry: &Entry<T>) -> String {
    format!("{} = {} # {}", quoted(key), quoted(value), entry.origin)
}

fn glob_lines(list: &GlobList) -> Vec<String> {
    list.iter().map(|entry| noted(quoted(&entry.value), entry)).collect()
}

fn name_lines(list: &NameList) -> Vec<String> {
    list.iter().map(|entry| noted(quoted(&entry.value), entry)).collect()
}

fn heading(page: &mut String, name: &str) {
    put(page, format_args!("\n[{name}]\n"));
}

fn table(page: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        heading(page, name);
    }
    for line in lines {
        put(page, format_args!("{line}\n"));
    }
}

fn list(page: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return put(page, format_args!("{name} = []\n"));
    }
    put(page, format_args!("{name} = [\n"));
    for line in lines {
        put(page, format_args!("  {line}\n"));
    }
    put(page, format_args!("]\n"));
}

fn lists<L>(page: &mut String, name: &str, all: &[L], lines: fn(&L) -> Vec<String>) {
    let mut all = all.iter();
    list(page, name, all.next().map(lines).unwrap_or_default().into_iter());
    for more in all {
        put(page, format_args!("# {name}, as another authority has it:\n"));
        for line in lines(more) {
            put(page, format_args!("#   {line}\n"));
        }
    }
}

fn array<T>(entries: &[Entry<T>], value: impl Fn(&T) -> Value) -> Value {
    let entry = |entry: &Entry<T>| {
        json!({
            "value": value(&entry.value),
            "origin": entry.origin.to_string(),
            "why": entry.why.as_deref(),
        })
    };
    entries.iter().map(entry).collect()
}

fn put(page: &mut String, words: fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _written = page.write_fmt(words);
}
