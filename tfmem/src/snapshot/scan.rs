//! One pass over resident memory through one buffer.

use std::ops::Range;

use zerocopy::IntoBytes as _;

use super::{
    heap::{Chunk, Heap, Mapped, Segment},
    objects::Classes,
    pymalloc::Pools,
    space::{Area, Space},
    window::WINDOW,
};
use crate::{observe::pagemap::PAGE, target::memory::Memory};

/// What a pass read, and what it could not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub bytes: u64,
    pub lost: u64,
}

/// Hands out the resident memory of some areas, in order, in pieces of whole pages where they begin at one.
pub fn each<M: Memory>(
    memory: &M,
    space: &Space,
    wanted: impl Fn(&Area) -> bool,
    skip: &[Range<u64>],
    mut piece: impl FnMut(&Area, u64, &[u64]),
) -> Read {
    let mut buffer = vec![0_u64; WINDOW / 8];
    let mut read = Read::default();
    for area in space.areas.iter().filter(|area| area.readable && wanted(area)) {
        for part in space.own(area.range.clone()) {
            let mut at = part.start;
            while at < part.end {
                let (from, end) = not_skipped(skip, at, part.end);
                if from >= end {
                    break;
                }
                let len = (end - from).min(WINDOW as u64);
                at = from + len;
                let Some(words) = buffer.get_mut(..len as usize / 8) else { break };
                if memory.read(from, words.as_mut_bytes()).is_ok() {
                    read.bytes += len;
                    piece(area, from, words);
                } else {
                    read.lost += len;
                }
            }
        }
    }
    read
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

/// What the first pass finds: chunks with mappings of their own, Python's pools, and the objects that are alive.
pub struct First<'a, 'b, M> {
    pub heap: Option<&'a Heap>,
    pub mapped: Mapped,
    pub python: Pools,
    pub classes: Classes<'b, M>,
}

impl<M: Memory> First<'_, '_, M> {
    pub fn run(&mut self, memory: &M, space: &Space) -> Read {
        each(memory, space, Area::is_anonymous, &[], |area, start, words| {
            self.piece(space.run_end(area), start, words);
        })
    }

    fn piece(&mut self, end: u64, start: u64, words: &[u64]) {
        const PAGE_WORDS: usize = PAGE as usize / 8;
        let mut last = None;
        for (at, page) in (start..).step_by(PAGE as usize).zip(words.chunks(PAGE_WORDS)) {
            if at.is_multiple_of(PAGE) {
                self.page(end, at, page);
            }
            // Hardly any word passes the first test: it must cost next to nothing.
            for (index, &word) in page.iter().enumerate() {
                if self.classes.may_be(word)
                    && let Some(chunk) = self.object(at + index as u64 * 8, &mut last)
                {
                    self.classes.meet(word, chunk);
                }
            }
        }
    }

    fn page(&mut self, end: u64, at: u64, words: &[u64]) {
        if self.heap.is_some_and(|heap| heap.segments.segment(at).is_some()) {
            return;
        }
        if self.heap.is_some() {
            self.mapped.page(at, words, end);
        }
        if self.mapped.end() <= at {
            self.python.page(at, words);
        }
    }

    /// The chunk in use whose data begin here. Only there does a vtable say what the chunk is: a pointer inside may be
    /// anything, one in a free chunk is of an object that is gone.
    fn object(&self, place: u64, last: &mut Option<Range<u64>>) -> Option<Chunk> {
        let heap = self.heap?;
        let start = place.checked_sub(16)?;
        if start.is_multiple_of(16)
            && let Some(segment) = heap.segments.segment(start)
        {
            return live_at(segment, start, last);
        }
        let block = self.mapped.block(place).filter(|block| block.data == place)?;
        Some(Chunk { start: block.data - 16, size: block.size, live: true })
    }
}

fn live_at(segment: &Segment, start: u64, last: &mut Option<Range<u64>>) -> Option<Chunk> {
    if !segment.is_live(start) || last.as_ref().is_some_and(|last| last.contains(&start)) {
        return None;
    }
    let chunk = segment.chunk(start)?;
    *last = Some(chunk.start..chunk.end());
    Some(chunk)
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
