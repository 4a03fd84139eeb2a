//! What both sides of the coding keep while a frame goes on.

use std::{borrow::Borrow, hash::Hash};

use rustc_hash::FxHashMap;

use super::format::RECENT_STEPS;
use crate::event::Snapshot;

/// Numbers for things, in order of first sight.
#[derive(Debug)]
pub struct Dictionary<K> {
    numbers: FxHashMap<K, u32>,
}

impl<K> Default for Dictionary<K> {
    fn default() -> Self {
        Self { numbers: FxHashMap::default() }
    }
}

impl<K: Eq + Hash> Dictionary<K> {
    /// The thing's number, and whether it is new.
    pub fn number<Q>(&mut self, key: &Q) -> (u64, bool)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(&number) = self.numbers.get(key) {
            return (u64::from(number), false);
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(key.to_owned(), number);
        (u64::from(number), true)
    }

    pub fn clear(&mut self) {
        self.numbers.clear();
    }
}

/// The latest steps, the last used first: few are under way at a time.
#[derive(Debug, Default)]
pub struct Steps {
    recent: Vec<i64>,
}

impl Steps {
    pub fn place(&self, step: i64) -> Option<usize> {
        self.recent.iter().position(|&recent| recent == step)
    }

    pub fn latest(&self) -> i64 {
        self.recent.first().copied().unwrap_or(0)
    }

    /// The step at this place, which is the latest now.
    pub fn again(&mut self, place: usize) -> Option<i64> {
        let step = *self.recent.get(place)?;
        self.recent.get_mut(..=place)?.rotate_right(1);
        Some(step)
    }

    pub fn add(&mut self, step: i64) {
        self.recent.truncate(RECENT_STEPS - 1);
        self.recent.insert(0, step);
    }

    pub fn clear(&mut self) {
        self.recent.clear();
    }
}

/// What was said last, from which the next is told as a distance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    pub time: u64,
    pub address: u64,
    pub site_pool: u64,
    pub map: u64,
    pub brk: u64,
    pub rss: [u64; 3],
}

/// Memory that a snapshot takes, about.
pub fn memory(snapshot: &Snapshot) -> usize {
    let mappings: usize = snapshot.mappings.iter().map(|mapping| mapping_memory(mapping.name.len())).sum();
    mappings + snapshot.resident.as_ref().map_or(0, |ranges| ranges.len() * RANGE_MEMORY)
}

pub const fn mapping_memory(name: usize) -> usize {
    size_of::<crate::event::Mapping>() + name
}

pub const RANGE_MEMORY: usize = size_of::<(u64, u64)>();
