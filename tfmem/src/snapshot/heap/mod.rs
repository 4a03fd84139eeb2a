//! glibc's heap, to the byte, read from outside: arenas, their chunks, which of them are free, and what of that
//! `malloc_trim` would give back.

mod arena;
mod find;
mod lists;
mod mapped;
mod segment;
mod trim;
mod walk;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

pub use arena::Arena;
pub use find::{Found, Parameters, find};
pub use mapped::{Block, Mapped};
pub use segment::{Chunk, GRAIN, Segment};
pub use trim::Free;
pub use walk::Walked;

use super::{space::Space, window::Window};
use crate::{event::HeapSeen, target::memory::Memory};

/// All segments of all arenas, by address.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    sorted: Vec<Segment>,
}

impl Segments {
    /// The segment that holds an address.
    #[must_use]
    pub fn segment(&self, address: u64) -> Option<&Segment> {
        self.sorted.get(self.place(address)).filter(|segment| segment.range.start <= address)
    }

    /// The chunk that holds an address.
    #[must_use]
    pub fn chunk(&self, address: u64) -> Option<Chunk> {
        self.segment(address)?.chunk(address)
    }

    /// See [`Segment::bury`].
    pub fn bury(&mut self, start: u64) -> bool {
        let place = self.place(start);
        self.sorted.get_mut(place).is_some_and(|segment| segment.bury(start))
    }

    #[must_use]
    pub fn all(&self) -> &[Segment] {
        &self.sorted
    }

    /// `false`: it overlaps another and was not taken.
    pub fn add(&mut self, segment: Segment) -> bool {
        let place = self.place(segment.range.start);
        if self.sorted.get(place).is_some_and(|next| next.range.start < segment.range.end) {
            return false;
        }
        self.sorted.insert(place, segment);
        true
    }

    fn place(&self, address: u64) -> usize {
        self.sorted.partition_point(|segment| segment.range.end <= address)
    }
}

/// The heap of a process.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    pub arenas: Vec<Arena>,
    pub segments: Segments,
    pub parameters: Option<Parameters>,
    /// The list of arenas did not come back to where it began.
    pub open_ring: bool,
    /// Arenas that were left out because our own memory has a bound.
    pub refused: u64,
    /// Caches of threads, and the chunks and bytes in them.
    pub caches: u64,
    pub cached: u64,
    pub cached_bytes: u64,
}

impl Heap {
    /// Its figures. `None`: it did not add up.
    #[must_use]
    pub fn seen(&self) -> Option<HeapSeen> {
        self.is_sound().then(|| HeapSeen {
            in_use: self.arenas.iter().map(Arena::in_use).sum(),
            free: self.arenas.iter().map(Arena::free_bytes).sum(),
            free_resident: self.arenas.iter().map(|arena| arena.free.resident).sum(),
            trimmable: self.arenas.iter().map(|arena| arena.free.trimmable).sum(),
        })
    }

    /// All of it was walked but for a hundredth of an arena at most.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.arenas.iter().all(Arena::is_sound) && self.refused == 0 && !self.open_ring
    }
}

/// Reads the heap. `None`: no arena of glibc's `malloc`.
#[must_use]
pub fn read<M: Memory>(memory: &M, space: &Space) -> Option<Heap> {
    let mut window = Window::new(memory, space);
    let found = find(memory, space)?;
    let mut heap = Heap { parameters: found.parameters, ..Heap::default() };
    arena::read_all(memory, space, &mut window, &mut heap, found);
    let bytes: u64 = heap.segments.all().iter().map(|segment| segment.range.end - segment.range.start).sum();
    window.allow(bytes);
    (heap.caches, heap.cached, heap.cached_bytes) = lists::caches(&mut window, &mut heap.segments);
    Some(heap)
}
