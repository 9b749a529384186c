//! How the policies of two authorities become one. Pure.
//!
//! A meeting takes grants only where both sides grant, restrictions where either restricts, and the
//! smaller of two ceilings; its result never grants what the cap does not. A cap that does not have
//! a key says nothing about it, so that an administrator's file of one line caps one thing.

use std::collections::BTreeMap;
use std::fmt;

use super::entry::{Entry, Origin};
use super::error::harmless;
use super::globs::{Cover, GlobList};
use super::names::passes;
use super::narrow::{narrower_block, narrower_host, narrower_path, same, shown_path};
use super::rules::{EnvRules, FileRules, NetRules, Policy, PriceRow, Resources};
use super::schema::Draft;
use crate::limits::Limits;

/// What a cap on money says about prices when it names none.
static NO_PRICES: Vec<Entry<PriceRow>> = Vec::new();

/// Something that a layer asked for and a cap does not allow; it is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widening {
    /// `net.allow`, `limits.max_usd`, …
    pub key: &'static str,
    pub what: String,
    pub origin: Origin,
}

impl fmt::Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}` in {} is not in force", self.origin, self.what, self.key)
    }
}

/// Holds `policy` under `cap` and says what of it was not in force.
pub(super) fn meet(policy: Policy, cap: &Draft) -> (Policy, Vec<Widening>) {
    let mut meeting = Meeting { origins: policy.origins, lost: Vec::new() };
    let m = &mut meeting;
    let (files, net, limits) = (policy.files, policy.net, policy.limits);
    let typed = &cap.limits;
    let files = FileRules {
        write: m.grants("fs.write", files.write, cap.write.as_deref(), narrower_path, shown_path),
        read: m.grants(
            "fs.read",
            files.read,
            // What may be written may be read.
            cap.read
                .as_ref()
                .map(|r| [r.as_slice(), cap.write.as_deref().unwrap_or_default()].concat())
                .as_deref(),
            narrower_path,
            shown_path,
        ),
        hide: m.cover("fs.hide", files.hide, &cap.hide),
        protect: m.cover("fs.protect", files.protect, &cap.protect),
    };
    let net = NetRules {
        mode: m.stricter("net.mode", net.mode, cap.mode.as_ref(), std::cmp::min),
        allow: m.grants(
            "net.allow",
            net.allow,
            cap.allow.as_deref(),
            narrower_host,
            ToString::to_string,
        ),
        deny: united(net.deny, &cap.deny, |a, b| a == b),
        ports: m.grants("net.ports", net.ports, cap.ports.as_deref(), same, ToString::to_string),
        connect_to: m.grants(
            "net.connect_to",
            net.connect_to,
            cap.connect_to.as_deref(),
            same,
            ToString::to_string,
        ),
        danger_private: m.grants(
            "net.danger_private",
            net.danger_private,
            cap.danger_private.as_deref(),
            narrower_block,
            ToString::to_string,
        ),
        extra_ca: m.grants("net.extra_ca", net.extra_ca, cap.extra_ca.as_deref(), same, shown_path),
        inference: united(net.inference, &cap.inference, |a, b| a.server == b.server),
    };
    let wall = cap.limits.max_wall.clone().map(|entry| entry.map(|span| span.0));
    let limits = Limits {
        max_turns: m.least("limits.max_turns", limits.max_turns, typed.max_turns.as_ref()),
        max_usd: m.least("limits.max_usd", limits.max_usd, typed.max_usd.as_ref()),
        max_tokens: m.least("limits.max_tokens", limits.max_tokens, typed.max_tokens.as_ref()),
        max_context_tokens: m.least(
            "limits.max_context_tokens",
            limits.max_context_tokens,
            typed.max_context_tokens.as_ref(),
        ),
        max_wall: m.least("limits.max_wall", limits.max_wall, wall.as_ref()),
        warn_at: limits.warn_at,
        on_limit: m.stricter(
            "limits.on_limit",
            limits.on_limit,
            typed.on_limit.as_ref(),
            std::cmp::max,
        ),
        unknown_price: m.stricter(
            "limits.unknown_price",
            limits.unknown_price,
            typed.unknown_price.as_ref(),
            std::cmp::max,
        ),
    };
    let resources = Resources {
        memory: m.least("resources.memory", policy.resources.memory, cap.memory.as_ref()),
        pids: m.least("resources.pids", policy.resources.pids, cap.pids.as_ref()),
        cpus: m.least("resources.cpus", policy.resources.cpus, cap.cpus.as_ref()),
    };
    let require =
        m.stricter("isolation.require", policy.require, cap.require.as_ref(), std::cmp::max);
    let env = m.env(policy.env, cap);
    let prices = m.prices(policy.prices, cap);
    let Meeting { origins, lost } = meeting;
    (Policy { files, net, limits, resources, require, env, prices, origins }, lost)
}

/// What a meeting keeps track of while it goes through the keys.
struct Meeting {
    origins: BTreeMap<&'static str, Origin>,
    lost: Vec<Widening>,
}

impl Meeting {
    /// What the program itself brought along and a cap takes away is no news to anyone.
    fn lose(&mut self, key: &'static str, what: String, origin: &Origin) {
        if !origin.is_built_in() {
            let what = harmless(&what);
            self.lost.push(Widening { key, what, origin: origin.clone() });
        }
    }

    /// Keeps what both sides grant; `narrower` is the part of two grants that they share.
    fn grants<T: Clone + PartialEq>(
        &mut self,
        key: &'static str,
        own: Vec<Entry<T>>,
        cap: Option<&[Entry<T>]>,
        narrower: fn(&T, &T) -> Option<T>,
        shown: fn(&T) -> String,
    ) -> Vec<Entry<T>> {
        let Some(cap) = cap else { return own };
        let mut kept: Vec<Entry<T>> = Vec::new();
        for entry in own {
            let shared: Vec<T> =
                cap.iter().filter_map(|theirs| narrower(&entry.value, &theirs.value)).collect();
            let whole = shared.contains(&entry.value);
            if !whole {
                self.lose(key, shown(&entry.value), &entry.origin);
            }
            let parts = if whole { vec![entry.value.clone()] } else { shared };
            for value in parts {
                if !kept.iter().any(|kept| kept.value == value) {
                    kept.push(Entry {
                        value,
                        why: entry.why.clone(),
                        origin: entry.origin.clone(),
                    });
                }
            }
        }
        kept
    }

    fn cover(&mut self, key: &'static str, mut own: Cover, cap: &GlobList) -> Cover {
        if cap.is_empty() || own.lists.contains(cap) {
            return own;
        }
        for entry in own.lists.iter().flatten() {
            let known = cap.iter().any(|theirs| theirs.value == entry.value);
            if entry.value.takes_back() && !known {
                self.lose(key, entry.value.to_string(), &entry.origin);
            }
        }
        own.lists.push(cap.clone());
        own
    }

    fn env(&mut self, mut own: EnvRules, cap: &Draft) -> EnvRules {
        if let Some(theirs) = &cap.pass {
            for entry in own.pass.iter().flatten().filter(|entry| !entry.value.takes_back()) {
                let name = entry.value.body();
                if passes(theirs, name).is_none() {
                    self.lose("env.pass", name.to_owned(), &entry.origin);
                }
            }
            if !own.pass.contains(theirs) {
                own.pass.push(theirs.clone());
            }
        }
        if let Some(theirs) = &cap.set {
            own.set.retain(|entry| {
                // What the program sets itself (a client's quiet switches) widens nothing.
                let kept = entry.origin.is_built_in()
                    || theirs.iter().any(|theirs| theirs.value == entry.value);
                if !kept {
                    self.lose("env.set", entry.value.name.clone(), &entry.origin);
                }
                kept
            });
        }
        own
    }

    /// A price of one's own stretches a ceiling on money, so it is a grant.
    fn prices(&mut self, own: Vec<Entry<PriceRow>>, cap: &Draft) -> Vec<Entry<PriceRow>> {
        let Some(theirs) = cap.prices.as_ref().or(cap.limits.max_usd.as_ref().map(|_| &NO_PRICES))
        else {
            return own;
        };
        for entry in own.iter().filter(|e| theirs.iter().all(|theirs| theirs.value != e.value)) {
            self.lose("price", entry.value.model.clone(), &entry.origin);
        }
        theirs.clone()
    }

    fn least<T: Copy + Ord>(
        &mut self,
        key: &'static str,
        own: Option<T>,
        cap: Option<&Entry<T>>,
    ) -> Option<T> {
        let Some(cap) = cap else { return own };
        if own.is_some_and(|own| own <= cap.value) {
            return own;
        }
        self.overruled(key, &cap.origin);
        Some(cap.value)
    }

    fn stricter<T: Copy + PartialEq>(
        &mut self,
        key: &'static str,
        own: T,
        cap: Option<&Entry<T>>,
        choose: fn(T, T) -> T,
    ) -> T {
        let Some(cap) = cap else { return own };
        let chosen = choose(own, cap.value);
        if chosen != own {
            self.overruled(key, &cap.origin);
        }
        chosen
    }

    fn overruled(&mut self, key: &'static str, by: &Origin) {
        if let Some(before) = self.origins.insert(key, by.clone()) {
            let name = key.rsplit('.').next().unwrap_or(key);
            self.lose(key, name.to_owned(), &before);
        }
    }
}

fn united<T: Clone>(
    mut own: Vec<Entry<T>>,
    more: &[Entry<T>],
    same: fn(&T, &T) -> bool,
) -> Vec<Entry<T>> {
    // The cap's word counts where both speak of one thing.
    own.retain(|entry| !more.iter().any(|more| same(&more.value, &entry.value)));
    own.extend_from_slice(more);
    own
}
