//! Arenas: the main one, which grows by `sbrk`, and those of threads, in heaps of 64 MiB.

use std::ops::Range;

use zerocopy::IntoBytes as _;

use super::{
    Heap,
    find::{Found, NEXT, STATE_BYTES, SYSTEM_MEM, TOP, is_state},
    lists,
    segment::{GRAIN, Segment},
    trim::{self, Free},
    walk::{Walked, Way, walk},
};
use crate::{
    event::MappingKind,
    snapshot::{space::Space, window::Window},
    target::memory::Memory,
};

/// One arena, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// Where its `malloc_state` lies.
    pub state: u64,
    pub main: bool,
    pub segments: u64,
    pub walked: Walked,
    /// The arena's and its heaps' own heads.
    pub heads: u64,
    /// Freed and kept in fastbins; counted in `walked.in_use`.
    pub fastbins: u64,
    /// What the arena says that it has from the system.
    pub system: u64,
    pub free: Free,
    /// So often it was read, because it changed meanwhile.
    pub tries: u64,
    /// A structure of it could not be read or made no sense.
    pub damaged: bool,
}

impl Arena {
    /// What is in use, fastbins not counted.
    #[must_use]
    pub const fn in_use(&self) -> u64 {
        self.walked.in_use.saturating_sub(self.fastbins)
    }

    /// `fordblks` of `mallinfo2`: free chunks, fastbins and the top.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.walked.free + self.walked.top + self.fastbins
    }

    /// All that was accounted for.
    #[must_use]
    pub const fn accounted(&self) -> u64 {
        self.walked.total() + self.heads
    }
}

/// `HEAP_MAX_SIZE`.
const HEAP_BYTES: u64 = 64 << 20;
/// glibc makes 8 arenas for each core.
const MOST_ARENAS: usize = 16_384;
const MOST_HEAPS: usize = 65_536;
/// An arena that changed while it was read is read again.
const TRIES: u64 = 3;

pub fn read_all<M: Memory>(memory: &M, space: &Space, window: &mut Window<'_, M>, heap: &mut Heap, found: Found) {
    // Bits for a heap that is mostly not resident could be more than the memory of the process.
    let mut bits_left = space.all_own_bytes() / 8 + (16 << 20);
    let mut state = found.main;
    for _ in 0..MOST_ARENAS {
        let index = heap.arenas.len();
        let Some(arena) = State::read(memory, state) else {
            heap.open_ring = true;
            return;
        };
        let (segments, heads, damaged) =
            if state == found.main { (main_segment(space, found), 0, false) } else { heaps(memory, state, arena.top) };
        let cost = segments.iter().map(|range| Segment::cost(range.end - range.start)).sum();
        match bits_left.checked_sub(cost) {
            Some(left) => {
                bits_left = left;
                let shell = Arena { state, main: state == found.main, heads, damaged, ..Arena::default() };
                let arena = one(memory, space, window, heap, shell, index, &segments);
                heap.arenas.push(arena);
            }
            None => heap.refused += 1,
        }
        state = arena.next;
        if state == found.main {
            return;
        }
    }
    heap.open_ring = true;
}

/// What of `struct malloc_state` is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    top: u64,
    next: u64,
    system: u64,
}

impl State {
    fn read(memory: &impl Memory, address: u64) -> Option<Self> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let mut words = [0_u64; STATE_BYTES as usize / 8];
        memory.read(address, words.as_mut_bytes()).ok()?;
        let word = |offset: u64| words.get(offset as usize / 8).copied().unwrap_or(0);
        // An arena that is busy may be between two states for a moment; its links are whole all the same.
        let sane = is_state(&words, address) || (word(NEXT) != 0 && word(SYSTEM_MEM).is_multiple_of(4096));
        sane.then(|| Self { top: word(TOP), next: word(NEXT), system: word(SYSTEM_MEM) })
    }
}

fn one<M: Memory>(
    memory: &M,
    space: &Space,
    window: &mut Window<'_, M>,
    heap: &mut Heap,
    shell: Arena,
    index: usize,
    ranges: &[Range<u64>],
) -> Arena {
    let mut best: Option<(Arena, Vec<Segment>)> = None;
    for tries in 1..=TRIES {
        let Some(state) = State::read(memory, shell.state) else { break };
        let mut arena = Arena { tries, system: state.system, segments: ranges.len() as u64, ..shell };
        let mut segments = Vec::new();
        for range in ranges {
            let mut segment = Segment::new(range.clone(), index);
            window.allow(range.end - range.start);
            let way = Way { from: range.start, end: range.end, top: state.top };
            arena.walked += walk(window, &mut segment, way);
            segments.push(segment);
        }
        let clean = arena.walked.lost == 0 && arena.accounted() == arena.system;
        if best.as_ref().is_none_or(|(known, _)| arena.off() < known.off()) {
            best = Some((arena, segments));
        }
        if clean {
            break;
        }
    }
    let Some((mut arena, segments)) = best else { return Arena { damaged: true, ..shell } };
    for segment in segments {
        arena.damaged |= !heap.segments.add(segment);
    }
    let bytes = ranges.iter().map(|range| range.end - range.start).sum();
    window.allow(bytes);
    arena.fastbins = lists::fastbins(window, &mut heap.segments, arena.state).1;
    for range in ranges {
        if let Some(segment) = heap.segments.segment(range.start).filter(|segment| segment.arena == index) {
            arena.free += trim::free(space, segment, arena.main);
        }
    }
    arena
}

impl Arena {
    /// Less than a hundredth is missing: its figures are off by no more than that.
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        !self.damaged && self.off() <= self.system / 100
    }

    /// How far a walk is from what the arena says of itself.
    const fn off(&self) -> u64 {
        self.walked.lost + self.accounted().abs_diff(self.system)
    }
}

/// The main arena lies in the `brk` area, which another caller of `sbrk` may have begun.
fn main_segment(space: &Space, found: Found) -> Vec<Range<u64>> {
    // One area, and yet several mappings after a fork or an advice about a part of it.
    let mut heap = space.areas.iter().filter(|area| area.kind == MappingKind::Heap);
    let Some(first) = heap.next() else { return Vec::new() };
    let range = first.range.start..heap.next_back().map_or(first.range.end, |last| last.range.end);
    let base = found.parameters.map(|parameters| parameters.sbrk_base).filter(|base| range.contains(base));
    let start = base.unwrap_or(range.start).next_multiple_of(GRAIN);
    Some(start..range.end).filter(|range| !range.is_empty()).into_iter().collect()
}

/// The heaps of a thread's arena, from the newest to the first: where their chunks may be, the bytes of their heads,
/// and whether the list broke.
///
/// `struct heap_info`: the arena, the heap before, its size. Its own size (32 bytes, 48 since glibc 2.35) shows in
/// where the arena lies in the first heap.
fn heaps(memory: &impl Memory, state: u64, top: u64) -> (Vec<Range<u64>>, u64, bool) {
    let head = state % HEAP_BYTES;
    let mut ranges = Vec::new();
    let mut heads = 0;
    let mut heap = top & !(HEAP_BYTES - 1);
    if !(head == 32 || head == 48) {
        return (ranges, heads, true);
    }
    for _ in 0..MOST_HEAPS {
        let mut info = [0_u64; 3];
        if memory.read(heap, info.as_mut_bytes()).is_err() {
            return (ranges, heads, true);
        }
        let [arena, before, size] = info;
        let first = heap == state - head;
        let from = if first { (state + STATE_BYTES).next_multiple_of(GRAIN) } else { heap + head };
        if arena != state || size > HEAP_BYTES || size % 4096 != 0 || heap + size <= from {
            return (ranges, heads, true);
        }
        ranges.push(from..heap + size);
        heads += from - heap;
        if before == 0 {
            return (ranges, heads, !first);
        }
        heap = before;
    }
    (ranges, heads, true)
}
