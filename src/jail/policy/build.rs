//! Drafts built on drafts, and the policy that a draft alone makes. Pure.
//!
//! Building (`extends`) happens within one authority: lists add up, and the later single value wins.

use std::collections::BTreeMap;

use super::entry::{Entry, Origin};
use super::globs::Cover;
use super::rules::{EnvRules, FileRules, Level, NetMode, NetRules, Policy, Resources};
use super::schema::{Draft, LimitsDraft};
use crate::limits::Limits;

impl Draft {
    /// What this file says, built on `base`.
    pub(super) fn over(self, base: Self) -> Self {
        Self {
            write: joined(base.write, self.write),
            read: joined(base.read, self.read),
            hide: [base.hide, self.hide].concat(),
            protect: [base.protect, self.protect].concat(),
            mode: self.mode.or(base.mode),
            allow: joined(base.allow, self.allow),
            deny: [base.deny, self.deny].concat(),
            ports: joined(base.ports, self.ports),
            connect_to: joined(base.connect_to, self.connect_to),
            danger_private: joined(base.danger_private, self.danger_private),
            extra_ca: joined(base.extra_ca, self.extra_ca),
            inference: [base.inference, self.inference].concat(),
            limits: self.limits.over(base.limits),
            memory: self.memory.or(base.memory),
            pids: self.pids.or(base.pids),
            cpus: self.cpus.or(base.cpus),
            require: self.require.or(base.require),
            pass: joined(base.pass, self.pass),
            set: joined(base.set, self.set),
            prices: joined(base.prices, self.prices),
        }
    }

    /// As the cap that a whole policy is: what it does not say, it does not grant.
    pub(super) fn complete(mut self) -> Self {
        self.write.get_or_insert_default();
        self.read.get_or_insert_default();
        self.allow.get_or_insert_default();
        self.ports.get_or_insert_default();
        self.connect_to.get_or_insert_default();
        self.danger_private.get_or_insert_default();
        self.extra_ca.get_or_insert_default();
        self.pass.get_or_insert_default();
        self.set.get_or_insert_default();
        self.prices.get_or_insert_default();
        self.mode.get_or_insert_with(|| {
            let origin = Origin { layer: "builtin:closed".into(), line: 0 };
            Entry { value: NetMode::Closed, why: None, origin }
        });
        self
    }
}

impl LimitsDraft {
    fn over(self, base: Self) -> Self {
        Self {
            max_turns: self.max_turns.or(base.max_turns),
            max_usd: self.max_usd.or(base.max_usd),
            max_tokens: self.max_tokens.or(base.max_tokens),
            max_context_tokens: self.max_context_tokens.or(base.max_context_tokens),
            max_wall: self.max_wall.or(base.max_wall),
            warn_at: self.warn_at.or(base.warn_at),
            on_limit: self.on_limit.or(base.on_limit),
            unknown_price: self.unknown_price.or(base.unknown_price),
        }
    }
}

fn joined<T>(base: Option<Vec<T>>, own: Option<Vec<T>>) -> Option<Vec<T>> {
    match (base, own) {
        (Some(mut base), Some(own)) => {
            base.extend(own);
            Some(base)
        }
        (base, own) => base.or(own),
    }
}

/// The policy that a draft alone makes. What it does not say is not granted and not limited.
pub(super) fn seal(draft: Draft) -> Policy {
    let mut origins = BTreeMap::new();
    let o = &mut origins;
    let strict = Limits::none();
    let typed = draft.limits;
    Policy {
        limits: Limits {
            max_turns: single(o, "limits.max_turns", typed.max_turns),
            max_usd: single(o, "limits.max_usd", typed.max_usd),
            max_tokens: single(o, "limits.max_tokens", typed.max_tokens),
            max_context_tokens: single(o, "limits.max_context_tokens", typed.max_context_tokens),
            max_wall: single(o, "limits.max_wall", typed.max_wall).map(|span| span.0),
            warn_at: single(o, "limits.warn_at", typed.warn_at).unwrap_or(strict.warn_at),
            on_limit: single(o, "limits.on_limit", typed.on_limit).unwrap_or(strict.on_limit),
            unknown_price: single(o, "limits.unknown_price", typed.unknown_price)
                .unwrap_or(strict.unknown_price),
        },
        resources: Resources {
            memory: single(o, "resources.memory", draft.memory),
            pids: single(o, "resources.pids", draft.pids),
            cpus: single(o, "resources.cpus", draft.cpus),
        },
        require: single(o, "isolation.require", draft.require).unwrap_or(Level::Full),
        net: NetRules {
            mode: single(o, "net.mode", draft.mode).unwrap_or(NetMode::Closed),
            allow: draft.allow.unwrap_or_default(),
            deny: draft.deny,
            ports: draft.ports.unwrap_or_default(),
            connect_to: draft.connect_to.unwrap_or_default(),
            danger_private: draft.danger_private.unwrap_or_default(),
            extra_ca: draft.extra_ca.unwrap_or_default(),
            inference: draft.inference,
        },
        files: FileRules {
            write: draft.write.unwrap_or_default(),
            read: draft.read.unwrap_or_default(),
            hide: Cover { lists: vec![draft.hide] },
            protect: Cover { lists: vec![draft.protect] },
        },
        env: EnvRules {
            pass: vec![draft.pass.unwrap_or_default()],
            set: draft.set.unwrap_or_default(),
        },
        prices: draft.prices.unwrap_or_default(),
        origins,
    }
}

fn single<T>(
    origins: &mut BTreeMap<&'static str, Origin>,
    key: &'static str,
    entry: Option<Entry<T>>,
) -> Option<T> {
    let entry = entry?;
    origins.insert(key, entry.origin);
    Some(entry.value)
}
