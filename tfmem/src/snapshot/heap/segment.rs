//! One contiguous piece of an arena and where its chunks begin: two bits for each 16 bytes.

use std::ops::Range;

/// All chunks begin at a multiple of this.
pub const GRAIN: u64 = 16;

/// A piece of memory that glibc or the kernel handed out as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where its header begins.
    pub start: u64,
    /// With its header.
    pub size: u64,
    /// Not free, and not waiting in a list of freed chunks.
    pub live: bool,
}

impl Chunk {
    /// What `malloc` returned.
    #[must_use]
    pub const fn data(&self) -> u64 {
        self.start + GRAIN
    }

    /// The program may use the first word of the next chunk as well, as long as this one is not free.
    #[must_use]
    pub const fn data_end(&self) -> u64 {
        self.start + self.size + 8
    }

    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.size
    }
}

#[derive(Clone, Debug)]
pub struct Segment {
    pub range: Range<u64>,
    /// Place of its arena in the list.
    pub arena: usize,
    /// Where the chunk begins that was never handed out.
    pub top: Option<u64>,
    starts: Vec<u64>,
    live: Vec<u64>,
    /// Where something begins that is no chunk, in order.
    holes: Vec<u64>,
}

/// A heap with more holes is not worth more of our own memory.
const MOST_HOLES: usize = 65_536;

impl Segment {
    #[must_use]
    pub fn new(range: Range<u64>, arena: usize) -> Self {
        let words = ((range.end - range.start) / GRAIN).div_ceil(64) as usize;
        Self { range, arena, top: None, starts: vec![0; words], live: vec![0; words], holes: Vec::new() }
    }

    /// Bytes of our own that the bits of a segment take.
    #[must_use]
    pub const fn cost(len: u64) -> u64 {
        len / (GRAIN * 4)
    }

    pub fn add(&mut self, start: u64, live: bool) {
        if let Some((word, bit)) = self.place(start) {
            self.starts[word] |= bit;
            if live {
                self.live[word] |= bit;
            }
        }
    }

    /// No chunk begins here, but the last one ends. `false`: there are too many such places.
    pub fn hole(&mut self, start: u64) -> bool {
        self.add(start, false);
        if self.holes.last().is_none_or(|&last| last < start) {
            self.holes.push(start);
        }
        self.holes.len() < MOST_HOLES
    }

    /// Is it a chunk that is in use? Then it is not any more.
    pub fn bury(&mut self, start: u64) -> bool {
        let Some((word, bit)) = self.place(start) else { return false };
        let was = self.live[word] & bit != 0;
        self.live[word] &= !bit;
        was
    }

    /// Does a chunk that is in use begin here?
    #[must_use]
    pub fn is_live(&self, start: u64) -> bool {
        self.place(start).is_some_and(|(word, bit)| self.live[word] & bit != 0)
    }

    /// The chunk that an address lies in.
    #[must_use]
    pub fn chunk(&self, address: u64) -> Option<Chunk> {
        if !self.range.contains(&address) {
            return None;
        }
        let place = (address - self.range.start) / GRAIN;
        let chunk = self.at(self.last_start(place)?)?;
        self.holes.binary_search(&chunk.start).is_err().then_some(chunk)
    }

    /// All chunks, in order.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        let mut next = 0;
        let all = std::iter::from_fn(move || {
            let start = self.first_start(next)?;
            next = start + 1;
            self.at(start)
        });
        all.filter(|chunk| self.holes.binary_search(&chunk.start).is_err())
    }

    fn at(&self, start: u64) -> Option<Chunk> {
        let address = self.range.start + start * GRAIN;
        let end = self.first_start(start + 1).map_or(self.range.end, |end| self.range.start + end * GRAIN);
        Some(Chunk { start: address, size: end - address, live: self.is_live(address) })
    }

    fn place(&self, address: u64) -> Option<(usize, u64)> {
        if !self.range.contains(&address) || !address.is_multiple_of(GRAIN) {
            return None;
        }
        let place = (address - self.range.start) / GRAIN;
        Some((place as usize / 64, 1 << (place % 64)))
    }

    /// The first start at or behind a place.
    fn first_start(&self, place: u64) -> Option<u64> {
        let mut word = place as usize / 64;
        let mut bits = self.starts.get(word)? & (u64::MAX << (place % 64));
        while bits == 0 {
            word += 1;
            bits = *self.starts.get(word)?;
        }
        Some(word as u64 * 64 + u64::from(bits.trailing_zeros()))
    }

    /// The last start at or before a place.
    fn last_start(&self, place: u64) -> Option<u64> {
        let mut word = place as usize / 64;
        let mut bits = self.starts.get(word)? & (u64::MAX >> (63 - place % 64));
        while bits == 0 {
            word = word.checked_sub(1)?;
            bits = *self.starts.get(word)?;
        }
        Some(word as u64 * 64 + 63 - u64::from(bits.leading_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_by_any_address_in_them() {
        let mut segment = Segment::new(0x10000..0x20000, 0);
        for (start, live) in [(0x10010, true), (0x10030, false), (0x14000, true)] {
            segment.add(start, live);
        }
        assert!(segment.hole(0x18000));
        let expected = [(0x10010, 0x20, true), (0x10030, 0x3fd0, false), (0x14000, 0x4000, true)];
        let expected = expected.map(|(start, size, live)| Chunk { start, size, live });
        assert_eq!(segment.chunks().collect::<Vec<_>>(), expected);
        for chunk in expected {
            for address in [chunk.start, chunk.start + 8, chunk.end() - 1] {
                assert_eq!(segment.chunk(address), Some(chunk), "{address:x}");
            }
        }
        assert_eq!(segment.chunk(0x1000f), None);
        assert_eq!(segment.chunk(0x18000), None);
        assert_eq!(segment.chunk(0x20000), None);
        assert!(segment.is_live(0x14000) && segment.bury(0x14000) && !segment.is_live(0x14000));
        assert!(!segment.bury(0x10030) && !segment.bury(0x10031));
    }
}
