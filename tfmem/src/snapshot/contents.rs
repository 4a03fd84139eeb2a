//! What lies in the memory of a process, stage by stage: large blocks and Python's pools, one pass, TensorFlow's pools,
//! holders.

use std::ops::Range;

use super::{
    clusters::Clusters,
    definitions,
    ground::{Clock, Ground},
    heads::Heads,
    heap::{Block, Heap, Mapped},
    holders::{self, Held},
    nearby::Nearby,
    objects::{Class, Classes, Kind, Static},
    owners::{Found, Met},
    pointers::Pointers,
    pools::{Pool, Refused},
    pymalloc::Pools,
    scan::{self, Look, Read, Reader, Sources},
};
use crate::{python::Version, target::memory::Memory};

/// A pool that changes while it is read is read again.
const TRIES: usize = 3;
/// One pointer is kept for so many resident bytes: eight bytes each, a fifth of what the process has.
const BYTES_PER_POINTER: u64 = 40;
/// As many are kept of the smallest process.
const FEWEST_POINTERS: u64 = 1 << 16;

/// What became of a pool's object, with its class.
pub type Tried = (String, Result<Pool, Refused>);

#[derive(Default)]
pub struct Contents {
    pub mapped: Mapped,
    pub python: Pools,
    pub version: Option<Version>,
    pub classes: Vec<Class>,
    /// Objects and classes that were too many.
    pub refused: u64,
    pub pools: Vec<Tried>,
    /// Of these, the ones whose sum is what they say themselves: others are no ground to stand on.
    pub named: Vec<(String, Pool)>,
    pub held: Held,
    pub read: Read,
}

impl Contents {
    /// `version`: of the Python that runs in it.
    #[must_use]
    pub fn read<M: Memory>(memory: &M, ground: &Ground, version: Option<Version>, clock: &mut Clock) -> Self {
        let Ground { space, heap, .. } = ground;
        let mut classes = Classes::new(Static::new(memory, space, ground.pid), space);
        let (mapped, python) = (Mapped::default(), Pools::of(version));
        let most = (space.all_own_bytes() / BYTES_PER_POINTER).max(FEWEST_POINTERS) as usize;
        let arenas = heap.iter().flat_map(|heap| heap.segments.all()).map(|segment| segment.range.clone());
        let arenas = Clusters::of(arenas);
        let (targets, pointers, classes_met) = (&arenas, Pointers::up_to(most), &mut classes);
        let mut heads = Heads { heap: heap.as_ref(), mapped, python, classes: classes_met, targets, pointers };
        let mut contents = Self { read: heads.look(memory, space), version, ..Self::default() };
        let pointers = heads.pointers;
        (contents.mapped, contents.python) = (heads.mapped, heads.python);
        if let Some(parameters) = heap.as_ref().and_then(|heap| heap.parameters) {
            contents.mapped.settle(parameters);
        }
        clock.stage("blocks", contents.read.bytes);
        if let Some(heap) = heap {
            let plain = Pointers::up_to(most.saturating_sub(pointers.len()));
            let met = Met { plain, python: pointers };
            contents.scan(memory, ground, (heap, met), &mut classes, clock);
        }
        contents.refused = classes.refused;
        contents.classes = classes.into_all();
        contents
    }

    fn scan<M: Memory>(
        &mut self,
        memory: &M,
        ground: &Ground,
        (heap, mut met): (&Heap, Met),
        classes: &mut Classes<'_, M>,
        clock: &mut Clock,
    ) {
        let space = &ground.space;
        let targets = targets(heap, &self.mapped);
        let mut sources = Sources {
            plain: Sources::plain(space, heap),
            blocks: self.mapped.all().iter().map(Block::range).collect(),
            python: self.python.ranges(),
        };
        let free = holders::free_ranges(heap);
        let mut reader = Reader::new(memory, space);
        let mut look = Look { heap, targets: &targets, classes: &mut *classes, pointers: &mut met.plain };
        let mut read = reader.each(&sources.plain, &free, |start, words| look.piece(start, words));
        clock.stage("scan", read.bytes);

        self.pools = read_pools(memory, classes);
        self.named = named(&self.pools);
        clock.stage("pools", 0);
        let nearby = Nearby::new(memory);
        let buffers = holders::buffers(&nearby, classes, heap, &self.mapped, &self.named);
        let data = holders::data_ranges(&buffers, &self.named, free);
        // What no tensor has its data in.
        sources.blocks.retain(|block| !is_covered(&data, block));
        let rest = reader.each(&sources.blocks, &data, |start, words| {
            scan::pointers(start, words, &targets, &mut met.plain);
        });
        clock.stage("rest", rest.bytes);
        read += rest;
        self.read += read;
        let found = Found {
            memory: &nearby,
            space,
            heap,
            mapped: &self.mapped,
            python: &self.python,
            classes,
            data: &data,
            sources: &sources,
            pointers: &met,
        };
        self.held = holders::held(&found, &buffers, &self.named);
        let (definitions, read) = definitions::holders(&found);
        self.held.holders.extend(definitions);
        self.held.holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        self.held.read += read;
        clock.stage("holders", self.held.read.bytes);
    }
}

/// Where chunks lie, of arenas and with mappings of their own.
fn targets(heap: &Heap, mapped: &Mapped) -> Clusters {
    let segments = heap.segments.all().iter().map(|segment| segment.range.clone());
    let mut ranges: Vec<Range<u64>> = segments.chain(mapped.all().iter().map(Block::range)).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    Clusters::of(ranges)
}

fn is_covered(data: &[Range<u64>], block: &Range<u64>) -> bool {
    let next = data.partition_point(|range| range.end <= block.start);
    data.get(next).is_some_and(|range| range.start <= block.start && block.end <= range.end)
}

fn read_pools<M: Memory>(memory: &M, classes: &Classes<'_, M>) -> Vec<Tried> {
    let mut pools = Vec::new();
    for (class, object) in classes.of(Kind::Pool) {
        let size = class.bytes / class.count.max(1);
        let mut pool = Pool::read(memory, object, size);
        for _ in 1..TRIES {
            if pool.as_ref().is_ok_and(|pool| pool.in_use() == pool.said_in_use) {
                break;
            }
            pool = Pool::read(memory, object, size);
        }
        pools.push((class.name.to_string(), pool));
    }
    pools
}

fn named(pools: &[Tried]) -> Vec<(String, Pool)> {
    let sound =
        pools.iter().filter_map(|(_, pool)| pool.as_ref().ok()).filter(|pool| pool.in_use() == pool.said_in_use);
    sound.map(|pool| (pool.name.clone().unwrap_or_else(|| "no name".to_owned()), pool.clone())).collect()
}
