//! A map whose entries go when their time is over, soonest first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shelf<K, V> {
    slots: HashMap<K, Slot<V>>,
    /// When which entry goes; the number parts those of the same instant.
    order: BTreeMap<(Instant, u64), K>,
    next: u64,
    weight: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    weight: usize,
    goes: (Instant, u64),
}

impl<K: Copy + Eq + Hash, V> Shelf<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            slots: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
            weight: 0,
        }
    }

    /// Lets go of everything whose time is over.
    pub(crate) fn tidy(&mut self, now: Instant) {
        while let Some(entry) = self.order.first_entry()
            && entry.key().0 <= now
        {
            let key = *entry.get();
            self.remove(&key);
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.slots.get(key).map(|slot| &slot.value)
    }

    /// When an entry goes.
    pub(crate) fn end_of(&self, key: &K) -> Option<Instant> {
        self.slots.get(key).map(|slot| slot.goes.0)
    }

    /// Puts an entry, instead of one that was there.
    pub(crate) fn put(&mut self, key: K, value: V, weight: usize, until: Instant) {
        self.remove(&key);
        let goes = (until, self.next);
        self.next += 1;
        self.weight += weight;
        self.order.insert(goes, key);
        let slot = Slot {
            value,
            weight,
            goes,
        };
        self.slots.insert(key, slot);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.slots.remove(key)?;
        self.order.remove(&slot.goes);
        self.weight -= slot.weight;
        Some(slot.value)
    }

    /// Lets go of those that would go soonest, until what is left weighs no more than this.
    pub(crate) fn shrink(&mut self, weight_max: usize) {
        while self.weight > weight_max
            && let Some(entry) = self.order.first_entry()
        {
            let key = *entry.get();
            self.remove(&key);
        }
    }

    /// What all that is there weighs.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_go_by_time_by_weight_and_one_by_one() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut shelf = Shelf::new();
        for (key, seconds) in [(1, 30), (2, 10), (3, 10), (4, 20)] {
            shelf.put(key, key, 5, after(seconds));
        }
        shelf.put(3, 33, 5, after(40));
        let left = |shelf: &Shelf<i32, i32>| [1, 2, 3, 4].map(|key| shelf.get(&key).copied());
        assert_eq!(
            (shelf.end_of(&3), shelf.end_of(&5)),
            (Some(after(40)), None)
        );
        shelf.tidy(after(10));
        assert_eq!(left(&shelf), [Some(1), None, Some(33), Some(4)]);
        shelf.shrink(10);
        assert_eq!(left(&shelf), [Some(1), None, Some(33), None]);
        assert_eq!(shelf.remove(&1), Some(1));
        assert_eq!((shelf.len(), shelf.order.len(), shelf.weight()), (1, 1, 5));
        shelf.tidy(after(40));
        assert_eq!((shelf.len(), shelf.order.len(), shelf.weight()), (0, 0, 0));
    }
}
