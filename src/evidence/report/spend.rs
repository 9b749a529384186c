//! What a run cost: settled, and what may have been spent besides.

use std::collections::BTreeMap;

use kvro_ledger::PicoUsd;
use kvro_ledger::event::Cost;

/// What was spent, and what may have been.
#[derive(Debug)]
pub(super) struct Spend {
    settled: Cost,
    /// Calls that are not settled, with what was held back for each.
    open: BTreeMap<u64, Option<PicoUsd>>,
    /// All that may have been spent if nothing more was recorded.
    through: Option<PicoUsd>,
}

impl Default for Spend {
    fn default() -> Self {
        Self { settled: Cost::Known(PicoUsd::ZERO), open: BTreeMap::new(), through: None }
    }
}

/// Whether what is on record is all there was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    Settled,
    /// The last second before a crash may be missing; the promised budget covers it.
    Promised,
}

impl Spend {
    /// A call left; `held` is held back for it until it is settled.
    pub(super) fn reserve(&mut self, call: u64, held: Option<PicoUsd>) {
        self.open.insert(call, held);
    }

    /// A call was paid for.
    pub(super) fn settle(&mut self, call: u64, cost: Cost) {
        self.open.remove(&call);
        self.settled = sum(self.settled, cost);
    }

    /// Up to `through` may be spent without being recorded.
    pub(super) const fn promise(&mut self, through: PicoUsd) {
        self.through = Some(through);
    }

    pub(super) fn total(&self, trust: Trust) -> Cost {
        let open = self.open.values().map(|held| held.map_or(Cost::Unknown, Cost::Known));
        let total = open.fold(self.settled, sum);
        match (total, trust, self.through) {
            (Cost::Known(total), Trust::Promised, Some(through)) => Cost::Known(total.max(through)),
            (total, _, _) => total,
        }
    }
}

/// The sum; nothing is known of it once a part is unknown.
fn sum(one: Cost, other: Cost) -> Cost {
    match (one, other) {
        (Cost::Known(one), Cost::Known(other)) => Cost::Known(one.saturating_add(other)),
        (Cost::Unknown, _) | (_, Cost::Unknown) => Cost::Unknown,
    }
}
