//! One pass over resident memory through one buffer.

use std::ops::Range;

use zerocopy::IntoBytes as _;

use super::{
    clusters::Clusters,
    heap::{Chunk, Heap, Segment},
    objects::Classes,
    pointers::Pointers,
    space::{Area, Space},
    window::WINDOW,
};
use crate::target::memory::Memory;

/// What a pass read, and what it could not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub bytes: u64,
    pub lost: u64,
}

impl std::ops::AddAssign for Read {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.lost += other.lost;
    }
}

/// Reads what is resident of given ranges, always into the same buffer.
pub struct Reader<'a, M> {
    memory: &'a M,
    space: &'a Space,
    buffer: Vec<u64>,
}

impl<'a, M: Memory> Reader<'a, M> {
    #[must_use]
    pub fn new(memory: &'a M, space: &'a Space) -> Self {
        Self { memory, space, buffer: vec![0; WINDOW / 8] }
    }

    /// Hands out the resident memory of the ranges, in order, in pieces of at most a window.
    pub fn each(&mut self, ranges: &[Range<u64>], skip: &[Range<u64>], mut piece: impl FnMut(u64, &[u64])) -> Read {
        let mut read = Read::default();
        for part in ranges.iter().flat_map(|range| self.space.own(range.clone())) {
            let mut at = part.start;
            while at < part.end {
                let (from, end) = not_skipped(skip, at, part.end);
                if from >= end {
                    break;
                }
                let len = (end - from).min(WINDOW as u64);
                at = from + len;
                let Some(words) = self.buffer.get_mut(..len as usize / 8) else { break };
                if self.memory.read(from, words.as_mut_bytes()).is_ok() {
                    read.bytes += len;
                    piece(from, words);
                } else {
                    read.lost += len;
                }
            }
        }
        read
    }
}

/// The next stretch at or behind `at` that is not in the (sorted) ranges to skip.
fn not_skipped(skip: &[Range<u64>], at: u64, end: u64) -> (u64, u64) {
    let mut from = at;
    let mut next = skip.partition_point(|range| range.end <= at);
    while let Some(range) = skip.get(next) {
        if range.start > from {
            return (from, end.min(range.start));
        }
        from = from.max(range.end);
        next += 1;
    }
    (from, end)
}

/// Where pointers may lie that hold something. Stacks are left out: most that lies in them is of calls that have
/// returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Arenas, and the data of libraries.
    pub plain: Vec<Range<u64>>,
    /// Chunks with mappings of their own: most are tensors' data, which is known after the first have been read.
    pub blocks: Vec<Range<u64>>,
    pub python: Vec<Range<u64>>,
}

impl Sources {
    /// The arenas and the data of libraries.
    #[must_use]
    pub fn plain(space: &Space, heap: &Heap) -> Vec<Range<u64>> {
        let segments = heap.segments.all().iter().map(|segment| segment.range.clone());
        let data = space.areas.iter().filter(|area| area.is_file() && area.readable && area.writable);
        segments.chain(data.map(|area: &Area| area.range.clone())).collect()
    }
}

/// What the pass over the arenas looks at: the objects that are alive, and pointers.
pub struct Look<'a, 'b, M> {
    pub heap: &'a Heap,
    /// Where pointers lead that are kept.
    pub targets: &'a Clusters,
    pub classes: &'a mut Classes<'b, M>,
    pub pointers: &'a mut Pointers,
}

impl<M: Memory> Look<'_, '_, M> {
    pub fn piece(&mut self, start: u64, words: &[u64]) {
        pointers(start, words, self.targets, self.pointers);
        let mut last = None;
        let (heap, classes) = (self.heap, &mut *self.classes);
        classes.each(words, |classes, index, word| {
            if let Some(chunk) = object(heap, start + index as u64 * 8, &mut last) {
                classes.meet(word, chunk);
            }
        });
    }
}

/// The chunk in use whose data begin here. Only there does a vtable say what the chunk is: a pointer inside may be
/// anything, one in a free chunk is of an object that is gone.
fn object(heap: &Heap, place: u64, last: &mut Option<Range<u64>>) -> Option<Chunk> {
    let start = place.checked_sub(16)?;
    let segment = heap.segments.segment(start).filter(|_| start.is_multiple_of(16))?;
    live_at(segment, start, last)
}

fn live_at(segment: &Segment, start: u64, last: &mut Option<Range<u64>>) -> Option<Chunk> {
    if !segment.is_live(start) || last.as_ref().is_some_and(|last| last.contains(&start)) {
        return None;
    }
    let chunk = segment.chunk(start)?;
    *last = Some(chunk.start..chunk.end());
    Some(chunk)
}

/// The pointers alone.
pub fn pointers(start: u64, words: &[u64], targets: &Clusters, pointers: &mut Pointers) {
    pointers.piece(start);
    targets.each(words, |index, word| pointers.add(index, word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_not_read() {
        let skip = [10..20, 20..25, 40..50];
        assert_eq!(not_skipped(&skip, 0, 100), (0, 10));
        assert_eq!(not_skipped(&skip, 10, 100), (25, 40));
        assert_eq!(not_skipped(&skip, 45, 100), (50, 100));
        assert_eq!(not_skipped(&skip, 45, 48), (50, 48));
        assert_eq!(not_skipped(&[], 1, 2), (1, 2));
    }
}
