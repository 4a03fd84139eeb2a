//! Chunks that are mappings of their own: found page by page, in order, by the header at their beginning.

use std::ops::Range;

use super::{find::Parameters, segment::GRAIN};
use crate::observe::pagemap::PAGE;

/// A chunk with a mapping of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub start: u64,
    pub size: u64,
    /// What `malloc` returned, or `memalign` where that is 64 bytes or less.
    pub data: u64,
}

impl Block {
    #[must_use]
    pub const fn range(&self) -> Range<u64> {
        self.start..self.start + self.size
    }
}

/// All of them, by address.
#[derive(Clone, Debug, Default)]
pub struct Mapped {
    blocks: Vec<Block>,
}

const IS_MAPPED: u64 = 2;
const FLAGS: u64 = 7;

impl Mapped {
    /// Looks at the words at the beginning of a page. `end`: of the mapping that it lies in.
    ///
    /// A chunk's size is in its second word and a multiple of the page's, the word before is 0. Aligned chunks (all of
    /// TensorFlow's tensors) keep that header and have their own behind it.
    pub fn page(&mut self, page: u64, words: &[u64], end: u64) {
        let [0, header, ..] = *words else { return };
        let size = header & !FLAGS;
        let fits = header & FLAGS == IS_MAPPED && size.is_multiple_of(PAGE) && size > 0 && size <= end - page;
        if !fits || self.end() > page {
            return;
        }
        const LEAD: u64 = 0x30;
        let aligned = words.get(LEAD as usize / 8) == Some(&LEAD)
            && words.get(LEAD as usize / 8 + 1) == Some(&((size - LEAD) | IS_MAPPED));
        let data = page + GRAIN + if aligned { LEAD } else { 0 };
        self.blocks.push(Block { start: page, size, data });
    }

    /// Leaves out what only looks like a chunk. None is small unless the threshold was set low or it was made smaller
    /// later: where malloc's own count is met without the small ones, they are none.
    pub fn settle(&mut self, said: Parameters) {
        const THRESHOLD: u64 = 128 << 10;
        let large = self.blocks.iter().filter(|block| block.size >= THRESHOLD);
        let (count, bytes) = large.fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.size));
        if (count, bytes) == (said.mapped_chunks, said.mapped_bytes) {
            self.blocks.retain(|block| block.size >= THRESHOLD);
        }
    }

    /// Where the last one ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.blocks.last().map_or(0, |last| last.start + last.size)
    }

    #[must_use]
    pub fn all(&self) -> &[Block] {
        &self.blocks
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.size).sum()
    }

    /// The block that holds an address.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<&Block> {
        let next = self.blocks.partition_point(|block| block.start + block.size <= address);
        self.blocks.get(next).filter(|block| block.start <= address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_aligned_chunks() {
        let mut mapped = Mapped::default();
        let mut page = [0; 8];
        page[1] = 0x3000 | 2;
        mapped.page(0x10000, &page, 0x20000);
        // Inside the first: no second one, whatever lies there.
        mapped.page(0x11000, &page, 0x20000);
        (page[6], page[7]) = (0x30, (0x3000 - 0x30) | 2);
        mapped.page(0x13000, &page, 0x20000);
        // Does not fit.
        mapped.page(0x1f000, &page, 0x20000);
        let expected = [(0x10000, 0x10010), (0x13000, 0x13040)];
        let expected = expected.map(|(start, data)| Block { start, size: 0x3000, data });
        assert_eq!(mapped.all(), expected);
        assert_eq!((mapped.bytes(), mapped.end()), (0x6000, 0x16000));
        assert_eq!(mapped.block(0x15fff), Some(&expected[1]));
        assert_eq!(mapped.block(0x16000), None);
        page[1] = 0x40000 | 2;
        mapped.page(0x20000, &page, 0x80000);
        mapped.settle(Parameters { mapped_chunks: 3, mapped_bytes: 0x46000, sbrk_base: 0 });
        assert_eq!(mapped.all().len(), 3);
        mapped.settle(Parameters { mapped_chunks: 1, mapped_bytes: 0x40000, sbrk_base: 0 });
        assert_eq!(mapped.all().len(), 1);
    }
}
