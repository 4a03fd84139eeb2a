//! Words that may be a vtable's address, told apart quickly, and the classes that they lead to.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;

use super::{Kind, Static};
use crate::{
    snapshot::{
        clusters::Clusters,
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
    /// Where vtables may lie.
    places: Clusters,
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
        Self {
            library,
            places: places(space),
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
        self.places.holds(word)
    }

    /// Hands out the words that may be, with their numbers.
    pub fn each(&mut self, words: &[u64], mut found: impl FnMut(&mut Self, usize, u64)) {
        // Taken out meanwhile, so that what is met can be noted.
        let places = std::mem::take(&mut self.places);
        places.each(words, |index, word| found(self, index, word));
        self.places = places;
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
    pub fn into_all(self) -> Vec<Class> {
        self.all
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

/// Vtables lie in data that the loader wrote addresses to, hence in pages of the process's own.
fn places(space: &Space) -> Clusters {
    let data = |area: &&Area| area.is_file() && !area.executable && area.readable && area.resident.own > 0;
    Clusters::of(space.areas.iter().filter(data).map(|area| area.range.clone()))
}
