//! Chunks that were freed and look as if they were in use: those in an arena's fastbins and in the threads' caches.

use super::{
    find::FASTBINS,
    segment::{Chunk, GRAIN, Segment},
};
use crate::{
    snapshot::{heap::Segments, window::Window},
    target::memory::Memory,
};

const FASTBIN_COUNT: u64 = 10;

/// Buries what lies in the fastbins of the arena at `state`: count and bytes.
pub fn fastbins<M: Memory>(window: &mut Window<'_, M>, segments: &mut Segments, state: u64) -> (u64, u64) {
    let mut freed = (0, 0);
    for bin in 0..FASTBIN_COUNT {
        let mut next = window.word(state + FASTBINS + bin * 8).unwrap_or(0);
        // A chunk that was met before is not in use any more: a list in a circle ends there.
        while next != 0 && segments.bury(next) {
            freed.0 += 1;
            freed.1 += segments.chunk(next).map_or(0, |chunk| chunk.size);
            next = linked(window, segments, next + GRAIN, next);
        }
    }
    freed
}

/// What a link at `place` leads to: since glibc 2.32 it is mangled with the address where it lies.
fn linked<M: Memory>(window: &mut Window<'_, M>, segments: &Segments, place: u64, from: u64) -> u64 {
    let Some(word) = window.word(place) else { return 0 };
    let mangled = word ^ (place >> 12);
    let fits = |at: &u64| *at != from && segments.segment(*at).is_some_and(|segment| segment.is_live(*at));
    [mangled, word].into_iter().find(fits).unwrap_or(0)
}

/// `struct tcache_perthread_struct` by glibc's version: bytes of its chunk, and of one counter in it.
const CACHES: [(u64, u64); 2] = [(0x290, 2), (0x250, 1)];
const CACHE_BINS: u64 = 64;
/// `tcache_count` is 7 unless tuned.
const MOST_CACHED: u64 = 127;

/// Buries what lies in the threads' caches: number of caches, count and bytes of chunks.
pub fn caches<M: Memory>(window: &mut Window<'_, M>, segments: &mut Segments) -> (u64, u64, u64) {
    let sized = |chunk: &Chunk| chunk.live && CACHES.iter().any(|&(size, _)| size == chunk.size);
    let candidates: Vec<Chunk> = segments.all().iter().flat_map(Segment::chunks).filter(sized).collect();
    let (mut caches, mut count, mut bytes) = (0, 0, 0);
    for chunk in candidates {
        let Some(cached) = cache(window, segments, chunk) else { continue };
        caches += 1;
        for start in cached {
            if let Some(chunk) = segments.chunk(start)
                && segments.bury(start)
            {
                count += 1;
                bytes += chunk.size;
            }
        }
    }
    (caches, count, bytes)
}

/// All that a cache holds; `None`: it is none, as its counters and lists do not agree.
fn cache<M: Memory>(window: &mut Window<'_, M>, segments: &Segments, chunk: Chunk) -> Option<Vec<u64>> {
    let (_, width) = *CACHES.iter().find(|&&(size, _)| size == chunk.size)?;
    let entries = chunk.data() + CACHE_BINS * width;
    let per_word = 8 / width;
    let mut found = Vec::new();
    for bin in 0..CACHE_BINS {
        let word = window.word(chunk.data() + bin / per_word * 8)?;
        let count = (word >> (bin % per_word * width * 8)) & ((1 << (width * 8)) - 1);
        let entry = window.word(entries + bin * 8)?;
        if count > MOST_CACHED || (count == 0) != (entry == 0) {
            return None;
        }
        found.extend(list(window, segments, entry, count, 32 + bin * GRAIN)?);
    }
    (!found.is_empty()).then_some(found)
}

fn list<M: Memory>(
    window: &mut Window<'_, M>,
    segments: &Segments,
    first: u64,
    count: u64,
    size: u64,
) -> Option<Vec<u64>> {
    let mut found = Vec::new();
    let mut data = first;
    for left in (0..count).rev() {
        let start = data.checked_sub(GRAIN)?;
        let chunk = segments.chunk(start).filter(|chunk| chunk.start == start && chunk.live && chunk.size == size)?;
        found.push(chunk.start);
        let word = window.word(data)?;
        let next = [word ^ (data >> 12), word];
        data = if left == 0 {
            next.into_iter().find(|&next| next == 0)?
        } else {
            let sized = |next: &u64| {
                next.checked_sub(GRAIN).and_then(|start| segments.chunk(start)).is_some_and(|chunk| chunk.size == size)
            };
            next.into_iter().find(sized)?
        };
    }
    Some(found)
}
