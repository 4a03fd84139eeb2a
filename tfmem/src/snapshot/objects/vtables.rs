//! Words that may be a vtable's address, told apart quickly, and the classes that they lead to.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use rustc_hash::FxHashMap;

use super::{Kind, Static};
use crate::{
    snapshot::{
        heap::Chunk,
        space::{Area, Space},
    },
    target::memory::Memory,
};

/// A class with objects that are alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: Arc<str>,
    pub kind: Kind,
    pub count: u64,
    pub bytes: u64,
    /// Where its objects begin, of the kinds that matter.
    pub objects: Vec<u64>,
}

pub struct Classes<'a, M> {
    library: Static<'a, M>,
    clusters: Vec<Cluster>,
    /// From the first cluster's beginning to the last one's end.
    all_from: u64,
    all_len: u64,
    /// What each word met so far is: a place in `all`, or no vtable.
    words: FxHashMap<u64, Option<usize>>,
    names: BTreeMap<Arc<str>, usize>,
    all: Vec<Class>,
    kept: usize,
    /// Words and objects that were left out because our own memory has a bound.
    pub refused: u64,
}

/// So many distinct words are looked up, and so many objects remembered.
const MOST_WORDS: usize = 1 << 17;
const MOST_KEPT: usize = 1 << 20;

impl<'a, M: Memory> Classes<'a, M> {
    #[must_use]
    pub fn new(library: Static<'a, M>, space: &Space) -> Self {
        let clusters = clusters(space);
        let all_from = clusters.first().map_or(0, |first| first.start);
        let all_len = clusters.last().map_or(0, |last| last.start + last.len - all_from);
        Self {
            library,
            clusters,
            all_from,
            all_len,
            words: FxHashMap::default(),
            names: BTreeMap::new(),
            all: Vec::new(),
            kept: 0,
            refused: 0,
        }
    }

    /// May this word be the address of a vtable?
    #[inline]
    #[must_use]
    pub fn may_be(&self, word: u64) -> bool {
        word.wrapping_sub(self.all_from) < self.all_len && self.clusters.iter().any(|cluster| cluster.holds(word))
    }

    /// An object that is alive begins with this word.
    pub fn meet(&mut self, word: u64, chunk: Chunk) {
        let Some(index) = self.resolve(word) else { return };
        let Some(class) = self.all.get_mut(index) else { return };
        class.count += 1;
        class.bytes += chunk.size;
        if class.kind == Kind::Other {
            return;
        }
        if self.kept < MOST_KEPT {
            self.kept += 1;
            class.objects.push(chunk.data());
        } else {
            self.refused += 1;
        }
    }

    /// The class whose objects begin with this word, of those that were met.
    #[must_use]
    pub fn known(&self, word: u64) -> Option<&Class> {
        self.words.get(&word).copied().flatten().and_then(|index| self.all.get(index))
    }

    #[must_use]
    pub fn all(&self) -> &[Class] {
        &self.all
    }

    /// Where objects of a kind begin, with the names of their classes.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = (&Class, u64)> {
        let classes = self.all.iter().filter(move |class| class.kind == kind);
        classes.flat_map(|class| class.objects.iter().map(move |&object| (class, object)))
    }

    fn resolve(&mut self, word: u64) -> Option<usize> {
        if let Some(&known) = self.words.get(&word) {
            return known;
        }
        if self.words.len() >= MOST_WORDS {
            self.refused += 1;
            return None;
        }
        let index = self.library.class(word).map(|name| self.place(&name));
        self.words.insert(word, index);
        index
    }

    /// A class may have several vtables: one in each library that holds a copy.
    fn place(&mut self, name: &str) -> usize {
        if let Some(&known) = self.names.get(name) {
            return known;
        }
        let index = self.all.len();
        let name: Arc<str> = name.into();
        self.all.push(Class { kind: Kind::of(&name), name: name.clone(), count: 0, bytes: 0, objects: Vec::new() });
        self.names.insert(name, index);
        index
    }
}

/// Mappings near each other: one bit for each 64 KiB that hold a library's data.
struct Cluster {
    start: u64,
    len: u64,
    bits: Vec<u64>,
}

const BLOCK: u64 = 64 << 10;
/// Further apart, another cluster begins: the bits of one take at most this over 512 Ki bytes.
const FAR: u64 = 4 << 30;

impl Cluster {
    #[inline]
    fn holds(&self, word: u64) -> bool {
        let at = word.wrapping_sub(self.start);
        if at >= self.len || word & 7 != 0 {
            return false;
        }
        let block = at / BLOCK;
        self.bits.get(block as usize / 64).is_some_and(|bits| bits & (1 << (block % 64)) != 0)
    }
}

/// Vtables lie in data that the loader wrote addresses to, hence in pages of the process's own.
fn clusters(space: &Space) -> Vec<Cluster> {
    let data = |area: &&Area| area.is_file() && !area.executable && area.readable && area.resident.own > 0;
    let mut groups: Vec<Vec<Range<u64>>> = Vec::new();
    for area in space.areas.iter().filter(data) {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| area.range.start - last.end < FAR) => {
                group.push(area.range.clone());
            }
            _ => groups.push(vec![area.range.clone()]),
        }
    }
    groups.iter().filter_map(|group| cluster(group)).collect()
}

fn cluster(group: &[Range<u64>]) -> Option<Cluster> {
    let start = group.first()?.start / BLOCK * BLOCK;
    let len = group.last()?.end - start;
    let mut bits = vec![0_u64; (len / BLOCK) as usize / 64 + 1];
    for range in group {
        for block in (range.start - start) / BLOCK..=(range.end - 1 - start) / BLOCK {
            if let Some(word) = bits.get_mut(block as usize / 64) {
                *word |= 1 << (block % 64);
            }
        }
    }
    Some(Cluster { start, len, bits })
}
