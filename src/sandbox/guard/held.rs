//! Names that wait for their time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::wire::At;

/// Each name once, with the moment at which it is due.
#[derive(Debug, Default)]
pub(super) struct Held {
    due: BTreeMap<At, Instant>,
    /// The same, the earliest first.
    order: BTreeSet<(Instant, At)>,
}

impl Held {
    /// Holds `at` until `due`, unless it is held already.
    pub(super) fn hold(&mut self, at: At, due: Instant) {
        if !self.due.contains_key(&at) {
            self.order.insert((due, at.clone()));
            self.due.insert(at, due);
        }
    }

    pub(super) fn forget(&mut self, at: &At) {
        if let Some((at, due)) = self.due.remove_entry(at) {
            self.order.remove(&(due, at));
        }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(due, _)| *due)
    }

    /// The earliest one that is due by `now`, which is not held any more.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<At> {
        if self.next()? > now {
            return None;
        }
        let (_, at) = self.order.pop_first()?;
        self.due.remove(&at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(name: &str) -> At {
        At { dir: "d".into(), name: name.into() }
    }

    #[test]
    fn the_earliest_comes_first_and_each_but_once() {
        let (mut held, now) = (Held::default(), Instant::now());
        let later = |millis| now + Duration::from_millis(millis);
        for (name, millis) in [("b", 20), ("a", 30), ("c", 10), ("c", 0), ("gone", 5)] {
            held.hold(at(name), later(millis));
        }
        held.forget(&at("gone"));
        held.forget(&at("never"));
        assert_eq!(held.next(), Some(later(10)));
        assert_eq!(held.take_due(later(9)), None);
        assert_eq!(held.take_due(later(20)), Some(at("c")));
        assert_eq!(held.take_due(later(20)), Some(at("b")));
        assert_eq!(held.take_due(later(20)), None);
        // One that was taken can be held again.
        held.hold(at("b"), later(40));
        assert_eq!(held.take_due(later(50)), Some(at("a")));
        assert_eq!(held.take_due(later(50)), Some(at("b")));
        assert_eq!((held.next(), held.take_due(later(50))), (None, None));
    }
}
