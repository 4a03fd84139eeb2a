//! CPython's own allocator for objects up to 512 bytes: its pools, found by their headers.
//!
//! `struct pool_header`: blocks in use +0 (int), first free block +8, neighbours +16 and +24, arena's number +32 (int),
//! size class +36 (int), offset of the next new block +40 (int), the largest such offset +44 (int); 48 bytes.

use std::ops::Range;

use crate::python::Version;

const HEADER: u64 = 48;
const GRAIN: u64 = 16;
const CLASSES: u64 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    pub start: u64,
    /// Bytes of one block.
    pub block: u64,
    /// Blocks in use.
    pub used: u64,
    pub arena: u64,
}

/// All pools, by address.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    /// Bytes of one pool; 0: no Python.
    pool_bytes: u64,
    pools: Vec<Pool>,
}

impl Pools {
    /// Pools grew from 4 to 16 KiB in 3.10.
    #[must_use]
    pub fn of(version: Option<Version>) -> Self {
        let pool_bytes = match version {
            None => 0,
            Some(version) if version < Version(3, 10) => 4 << 10,
            Some(_) => 16 << 10,
        };
        Self { pool_bytes, pools: Vec::new() }
    }

    /// Looks at the words at the beginning of a page.
    pub fn page(&mut self, page: u64, words: &[u64]) {
        if self.pool_bytes == 0 || !page.is_multiple_of(self.pool_bytes) {
            return;
        }
        let [count, free, _, _, arena, offsets, ..] = *words else { return };
        let (class, count) = (arena >> 32, count & 0xffff_ffff);
        let (next, most) = (offsets & 0xffff_ffff, offsets >> 32);
        let block = (class + 1) * GRAIN;
        if class >= CLASSES || most != self.pool_bytes - block || !(HEADER..=self.pool_bytes).contains(&next) {
            return;
        }
        let inside = free == 0 || (free > page && free < page + self.pool_bytes);
        if inside && count <= (self.pool_bytes - HEADER) / block {
            self.pools.push(Pool { start: page, block, used: count, arena: arena & 0xffff_ffff });
        }
    }

    #[must_use]
    pub fn all(&self) -> &[Pool] {
        &self.pools
    }

    /// Where they lie, those that touch in one.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for pool in &self.pools {
            match ranges.last_mut() {
                Some(last) if last.end == pool.start => last.end += self.pool_bytes,
                _ => ranges.push(pool.start..pool.start + self.pool_bytes),
            }
        }
        ranges
    }

    /// Where the last one ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pools.last().map_or(0, |last| last.start + self.pool_bytes)
    }

    #[must_use]
    pub const fn pool_bytes(&self) -> u64 {
        self.pool_bytes
    }

    /// Bytes of all blocks in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.used * pool.block).sum()
    }

    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.pools.len() as u64 * self.pool_bytes
    }

    /// Arenas that have a pool.
    #[must_use]
    pub fn arenas(&self) -> u64 {
        let mut arenas: Vec<u64> = self.pools.iter().map(|pool| pool.arena).collect();
        arenas.sort_unstable();
        arenas.dedup();
        arenas.len() as u64
    }

    /// Where the block begins that holds an address, and how large it is.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<(u64, u64)> {
        let next = self.pools.partition_point(|pool| pool.start + self.pool_bytes <= address);
        let pool = self.pools.get(next).filter(|pool| pool.start + HEADER <= address)?;
        let first = pool.start + HEADER;
        Some((first + (address - first) / pool.block * pool.block, pool.block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(count: u64, class: u64, most: u64) -> [u64; 6] {
        [count, 0, 0, 0, 3 | class << 32, 48 | most << 32]
    }

    #[test]
    fn pools_are_known_by_their_headers() {
        let mut pools = Pools::of(Some(Version(3, 11)));
        pools.page(0x10000, &header(5, 3, (16 << 10) - 64));
        // Not at a pool's place, too many blocks, a class that is none, another size of pools.
        pools.page(0x11000, &header(5, 3, (16 << 10) - 64));
        pools.page(0x14000, &header(256, 3, (16 << 10) - 64));
        pools.page(0x14000, &header(5, 32, (16 << 10) - 528));
        pools.page(0x14000, &header(5, 3, (4 << 10) - 64));
        assert_eq!(pools.all(), [Pool { start: 0x10000, block: 64, used: 5, arena: 3 }]);
        assert_eq!((pools.used_bytes(), pools.total_bytes(), pools.arenas()), (320, 16 << 10, 1));
        assert_eq!(pools.block(0x10030 + 70), Some((0x10030 + 64, 64)));
        assert_eq!(pools.block(0x10010), None);
        assert_eq!(pools.block(0x14000), None);
        let mut none = Pools::of(None);
        none.page(0x10000, &header(5, 3, (16 << 10) - 64));
        assert!(none.all().is_empty());
    }
}
