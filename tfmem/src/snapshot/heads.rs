//! What lies at the beginnings of pages outside the arenas: chunks with mappings of their own, Python's pools. The inside
//! of such a chunk is not read: most are tensors' data.

use zerocopy::IntoBytes as _;

use super::{
    clusters::Clusters,
    heap::{Chunk, Heap, Mapped},
    objects::Classes,
    pointers::Pointers,
    pymalloc::Pools,
    scan::{self, Read},
    space::Space,
    window::WINDOW,
};
use crate::{observe::pagemap::PAGE, target::memory::Memory};

/// What a look at the pages finds.
pub struct Heads<'a, 'b, M> {
    pub heap: Option<&'a Heap>,
    pub mapped: Mapped,
    pub python: Pools,
    pub classes: &'a mut Classes<'b, M>,
    /// The arenas, and the pointers into them that Python's objects have.
    pub targets: &'a Clusters,
    pub pointers: Pointers,
}

/// Read first behind a chunk: another often follows. What is none is read in larger and larger pieces.
const FIRST: u64 = 2 * PAGE;

impl<M: Memory> Heads<'_, '_, M> {
    pub fn look(&mut self, memory: &M, space: &Space) -> Read {
        let mut buffer = vec![0_u64; WINDOW / 8];
        let mut read = Read::default();
        for area in space.areas.iter().filter(|area| area.is_anonymous()) {
            let end = space.run_end(area);
            for part in space.own(area.range.clone()) {
                self.part(memory, end, (part.start, part.end), &mut buffer, &mut read);
            }
        }
        read
    }

    fn part(&mut self, memory: &M, end: u64, part: (u64, u64), buffer: &mut [u64], read: &mut Read) {
        let mut at = part.0;
        let mut len = FIRST;
        loop {
            at = self.beyond(at);
            if at >= part.1 {
                return;
            }
            let wanted = len.min(part.1 - at);
            let Some(words) = buffer.get_mut(..wanted as usize / 8) else { return };
            if memory.read(at, words.as_mut_bytes()).is_err() {
                (read.lost, at) = (read.lost + wanted, at + wanted);
                continue;
            }
            read.bytes += wanted;
            len = (len * 2).min(WINDOW as u64);
            let mut next = at + wanted;
            for (page, words) in (at..).step_by(PAGE as usize).zip(words.chunks(PAGE as usize / 8)) {
                self.page(end, page, words);
                let beyond = self.beyond(page);
                if beyond > page {
                    (next, len) = (beyond, FIRST);
                    break;
                }
            }
            at = next;
        }
    }

    /// Where what holds this page ends, rounded up to whole pages, or the page itself.
    fn beyond(&self, page: u64) -> u64 {
        let segment = self.heap.and_then(|heap| heap.segments.segment(page)).map_or(0, |segment| segment.range.end);
        self.mapped.end().max(segment).max(page).next_multiple_of(PAGE)
    }

    fn page(&mut self, end: u64, at: u64, words: &[u64]) {
        if self.heap.is_some_and(|heap| heap.segments.segment(at).is_some()) || self.mapped.end() > at {
            return;
        }
        if self.heap.is_some() {
            self.mapped.page(at, words, end);
        }
        if self.mapped.end() > at {
            return self.object(at, words);
        }
        self.python.page(at, words);
        if at < self.python.end() {
            scan::pointers(at, words, self.targets, &mut self.pointers);
        }
    }

    /// A large object, or one in a chunk of its own because of the threshold.
    fn object(&mut self, page: u64, words: &[u64]) {
        let Some(&block) = self.mapped.all().last() else { return };
        let first = words.get((block.data - page) as usize / 8);
        if let Some(&word) = first.filter(|&&word| self.classes.may_be(word)) {
            self.classes.meet(word, Chunk { start: block.data - 16, size: block.size, live: true });
        }
    }
}
