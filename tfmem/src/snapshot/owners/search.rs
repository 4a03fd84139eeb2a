//! The search: each level goes once through the pointers that were met when memory was read. Where they were too many to
//! be kept, it goes through memory itself, tensors' data left out.

use std::{ops::Range, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    graph::{Graph, Node, Place, Reference},
    targets::Targets,
};
use crate::{
    snapshot::{
        heap::{Chunk, Heap, Mapped},
        nearby::Nearby,
        objects::{Class, Classes, Kind},
        pointers::Pointers,
        pymalloc::Pools,
        python_type,
        scan::{Read, Reader, Sources},
        space::{Area, Space},
    },
    target::memory::Memory,
};

const LEVELS: usize = 6;
/// Python's objects point to tensors and their handles, not to parts further on.
const PYTHON_LEVELS: usize = 2;
/// One node for so many resident bytes of the process: our own memory stays well below its.
const BYTES_PER_NODE: u64 = 1024;
const MOST_REFERENCES: usize = 32;

/// All that the first pass found.
pub struct Found<'a, 'b, M> {
    pub memory: &'a Nearby<'a, M>,
    pub space: &'a Space,
    pub heap: &'a Heap,
    pub mapped: &'a Mapped,
    pub python: &'a Pools,
    pub classes: &'a Classes<'b, M>,
    /// Where no pointers lie: tensors' data, pools, free memory. Sorted.
    pub data: &'a [Range<u64>],
    pub sources: &'a Sources,
    pub pointers: &'a Met,
}

impl<'a, M: Memory> Found<'a, '_, M> {
    /// The class of the object that begins here, if its first word says one that was met.
    pub fn class(&self, object: u64) -> Option<&'a Class> {
        self.memory.word(object).ok().and_then(|first| self.classes.known(first))
    }
}

/// The pointers that were met.
#[derive(Debug, Default)]
pub struct Met {
    /// In arenas, large blocks and the data of libraries.
    pub plain: Pointers,
    pub python: Pointers,
}

pub(super) struct Search<'a, 'b, 'c, M> {
    pub(super) found: &'c Found<'a, 'b, M>,
    pub(super) graph: Graph,
    /// Nodes by where their data begin.
    by_start: FxHashMap<u64, usize>,
    /// Nodes that the next pass asks for.
    next: Vec<usize>,
    pub(super) types: FxHashMap<u64, Option<Arc<str>>>,
    most_nodes: usize,
}

/// Looks for the holders of `objects`, which become the first nodes in their order. `bytes`: what each has.
#[must_use]
pub fn search<M: Memory>(found: &Found<'_, '_, M>, objects: &[(Kind, Arc<str>, u64)], bytes: &[u64]) -> (Graph, Read) {
    let mut search = Search {
        found,
        graph: Graph::default(),
        by_start: FxHashMap::default(),
        next: Vec::new(),
        types: FxHashMap::default(),
        most_nodes: (found.space.all_own_bytes() / BYTES_PER_NODE) as usize,
    };
    for (kind, class, start) in objects {
        let end = search.chunk(*start).map_or(start + 8, |chunk| chunk.data_end());
        search.add(Place::Object(*kind, class.clone()), *start..end);
    }
    let mut read = Read::default();
    for level in 0..LEVELS {
        let targets = search.targets();
        if search.next.is_empty() {
            break;
        }
        search.next.clear();
        read += search.level(&targets, level < PYTHON_LEVELS);
    }
    read += search.ask_python(bytes);
    (search.graph, read)
}

impl<M: Memory> Search<'_, '_, '_, M> {
    /// Notes all pointers to the targets.
    fn level(&mut self, targets: &Targets, python: bool) -> Read {
        let Found { pointers, sources, data, .. } = *self.found;
        if pointers.plain.is_full() || pointers.python.is_full() {
            let mut reader = Reader::new(self.found.memory, self.found.space);
            let mut read = Read::default();
            for ranges in [Some(&sources.plain), Some(&sources.blocks), python.then_some(&sources.python)] {
                read += reader.each(ranges.map_or(&[], Vec::as_slice), data, |start, words| {
                    for (at, &word) in (start..).step_by(8).zip(words) {
                        self.meet(targets, at, word);
                    }
                });
            }
            return read;
        }
        pointers.plain.each(|at, word| self.meet(targets, at, word));
        if python {
            pointers.python.each(|at, word| self.meet(targets, at, word));
        }
        Read::default()
    }

    /// The word lies at `at`.
    #[inline]
    pub(super) fn meet(&mut self, targets: &Targets, at: u64, word: u64) {
        if targets.may_hit(word)
            && let Some(node) = targets.hit(word)
        {
            self.refer(at, node);
        }
    }

    fn targets(&self) -> Targets {
        let nodes = self.next.iter().filter_map(|&index| Some((index, self.graph.nodes.get(index)?)));
        let ranges = nodes.map(|(index, node)| {
            // A part may be pointed into, and an object by a base class of its; a buffer is counted by exact pointers.
            let exact = matches!(node.place, Place::Object(Kind::Buffer | Kind::Slice, _));
            (node.range.clone(), index, exact)
        });
        Targets::new(ranges.collect())
    }

    fn add(&mut self, place: Place, range: Range<u64>) -> usize {
        let index = self.graph.nodes.len();
        if place.is_asked() && index < self.most_nodes {
            self.next.push(index);
        }
        self.by_start.insert(range.start, index);
        self.graph.nodes.push(Node { place, range, references: Vec::new() });
        index
    }

    /// A pointer to `node` lies at `at`.
    fn refer(&mut self, at: u64, node: usize) {
        let full = |node: &Node| node.references.len() >= MOST_REFERENCES || node.range.contains(&at);
        if self.graph.nodes.get(node).is_none_or(full) || self.graph.nodes.len() >= self.most_nodes {
            return;
        }
        let next = self.found.data.partition_point(|range| range.end <= at);
        if self.found.data.get(next).is_some_and(|range| range.start <= at) {
            return;
        }
        let Some(from) = self.holder(at) else { return };
        if let Some(node) = self.graph.nodes.get_mut(node) {
            node.references.push(Reference { from, at });
        }
    }

    /// The node that an address lies in; `None`: in memory that nobody uses.
    fn holder(&mut self, at: u64) -> Option<usize> {
        // A chunk's data reach over the first word of the next one.
        if let Some(chunk) = self.chunk(at.saturating_sub(8)) {
            let known = self.by_start.get(&chunk.data()).copied();
            return (chunk.live && at >= chunk.data()).then(|| known.unwrap_or_else(|| self.object(chunk)));
        }
        let Some((block, size)) = self.found.python.block(at) else {
            let area = self.found.space.area(at).filter(|area| area.is_file())?;
            return Some(self.statics(area));
        };
        if let Some(&known) = self.by_start.get(&block) {
            return Some(known);
        }
        let name = python_type::name(self.found.memory, block, size, &mut self.types);
        Some(self.add(Place::Python(name), block..block + size))
    }

    fn statics(&mut self, area: &Area) -> usize {
        if let Some(&known) = self.by_start.get(&area.range.start) {
            return known;
        }
        self.add(Place::Static(area.name.as_str().into()), area.range.clone())
    }

    fn object(&mut self, chunk: Chunk) -> usize {
        let class = self.found.class(chunk.data());
        let place = class.map_or(Place::Part, |class| Place::Object(class.kind, class.name.clone()));
        self.add(place, chunk.data()..chunk.data_end())
    }

    /// The chunk that holds an address, of an arena or with a mapping of its own.
    fn chunk(&self, address: u64) -> Option<Chunk> {
        let block = || self.found.mapped.block(address);
        let mapped = || {
            block().map(|block| Chunk { start: block.data - 16, size: block.range().end - block.data + 16, live: true })
        };
        self.found.heap.segments.chunk(address).or_else(mapped)
    }
}
