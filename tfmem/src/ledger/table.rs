//! Blocks of one layer that are alive, by address, in as few bytes as they need.
//!
//! A process can hold a million chunks, so a row keeps numbers for what repeats (op, region and data type as one
//! *site*; the pool) and the index maps an address to a row number only: 56 bytes for a row and 13 for each index slot.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;

use crate::event::{Addr, Origin, StackId};
use crate::ledger::types::{Allocation, BlockLayer};

/// Op, region and data type of an [`Origin`], the stack, and that of where the step began: what a program repeats step
/// after step.
pub(super) type Site = (u64, [u8; 8], i32, Option<StackId>, Option<StackId>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub addr: Addr,
    pub bytes: u64,
    pub requested: u64,
    pub born: u64,
    pub step: i64,
    pub tid: u32,
    /// Session, 0 for none.
    pub owner: u32,
    /// Numbers given by the [`Names`], 0 for none.
    pub site: u32,
    pub pool: u32,
}

/// An address with the alignment of a `u32`, so that key and row number fill 12 bytes and not 16.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key([u32; 2]);

impl Key {
    const fn of(addr: Addr) -> Self {
        Self([addr as u32, (addr >> 32) as u32])
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.0[0]) | (u64::from(self.0[1]) << 32));
    }
}

/// The blocks of one layer. Rows lie densely: the last one takes the place of one that goes.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    index: FxHashMap<Key, u32>,
    bytes: u64,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", u64::from(self.0[0]) | (u64::from(self.0[1]) << 32))
    }
}

impl Table {
    /// Puts a block in; the block that was alive at this address before, if there was one, is returned.
    pub fn insert(&mut self, row: Row) -> Option<Row> {
        if let Some(&slot) = self.index.get(&Key::of(row.addr)) {
            let old = std::mem::replace(self.rows.get_mut(slot as usize)?, row);
            // Sums wrap so that taking a row out undoes putting it in, whatever sizes a damaged stream claims.
            self.bytes = self.bytes.wrapping_sub(old.bytes).wrapping_add(row.bytes);
            return Some(old);
        }
        let slot = u32::try_from(self.rows.len()).ok()?;
        if self.rows.len() == self.rows.capacity() {
            // Doubling would leave up to half of a large table unused.
            self.rows.reserve_exact(self.rows.len() / 8 + 64);
        }
        self.rows.push(row);
        self.index.insert(Key::of(row.addr), slot);
        self.bytes = self.bytes.wrapping_add(row.bytes);
        None
    }

    pub fn remove(&mut self, addr: Addr) -> Option<Row> {
        let slot = self.index.remove(&Key::of(addr))?;
        let old = self.rows.swap_remove(slot as usize);
        if let Some(moved) = self.rows.get(slot as usize) {
            self.index.insert(Key::of(moved.addr), slot);
        }
        self.bytes = self.bytes.wrapping_sub(old.bytes);
        if self.rows.capacity() > 4096 && self.rows.len() < self.rows.capacity() / 8 {
            self.rows.shrink_to(self.rows.len() * 2);
            self.index.shrink_to(self.rows.len() * 2);
        }
        Some(old)
    }

    pub fn get(&self, addr: Addr) -> Option<&Row> {
        self.rows.get(*self.index.get(&Key::of(addr))? as usize)
    }

    pub fn set_pool(&mut self, addr: Addr, pool: u32) {
        if let Some(&slot) = self.index.get(&Key::of(addr))
            && let Some(row) = self.rows.get_mut(slot as usize)
        {
            row.pool = pool;
        }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cfg(test)]
    pub fn heap_size(&self) -> usize {
        // A hash table of std is at most 7/8 full and keeps one byte beside each slot.
        let slots = (self.index.capacity() * 8 / 7).next_power_of_two();
        self.rows.capacity() * size_of::<Row>() + slots * (size_of::<(Key, u32)>() + 1)
    }
}

/// Gives what repeats a small number, from 1.
#[derive(Debug)]
pub(super) struct Interner<K> {
    ids: FxHashMap<K, u32>,
    values: Vec<K>,
}

impl<K> Default for Interner<K> {
    fn default() -> Self {
        Self { ids: FxHashMap::default(), values: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash> Interner<K> {
    pub fn id(&mut self, key: K) -> u32 {
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        self.values.push(key);
        let id = u32::try_from(self.values.len()).unwrap_or(0);
        self.ids.insert(key, id);
        id
    }

    pub fn find(&self, key: K) -> Option<u32> {
        self.ids.get(&key).copied()
    }

    pub fn get(&self, id: u32) -> Option<K> {
        self.values.get((id as usize).checked_sub(1)?).copied()
    }
}

/// What the numbers in rows stand for.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub sites: Interner<Site>,
    pub pools: Interner<Addr>,
}

impl Names {
    pub fn site(&mut self, origin: &Origin, stack: Option<StackId>, launch: Option<StackId>) -> u32 {
        let site = (origin.op, origin.region, origin.dtype, stack, launch);
        if site == Site::default() { 0 } else { self.sites.id(site) }
    }

    pub fn view(&self, layer: BlockLayer, row: &Row) -> Allocation {
        let (op, region, dtype, stack, launch) = self.sites.get(row.site).unwrap_or_default();
        Allocation {
            layer,
            addr: row.addr,
            bytes: row.bytes,
            requested: row.requested,
            born: row.born,
            tid: row.tid,
            owner: (row.owner != 0).then_some(u64::from(row.owner)),
            origin: Origin { op, step: row.step, region, dtype },
            pool: self.pools.get(row.pool),
            stack,
            launch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(addr: Addr, bytes: u64) -> Row {
        Row { addr, bytes, requested: bytes, born: 1, step: 0, tid: 1, owner: 0, site: 0, pool: 0 }
    }

    #[test]
    fn a_million_blocks_fit_in_less_than_100_mb() {
        assert_eq!(size_of::<Row>(), 56);
        assert_eq!(size_of::<(Key, u32)>(), 12);
        let mut table = Table::default();
        let mut most = 0;
        for i in 0..1_000_000_u64 {
            table.insert(row(0x7f00_0000_0000 + i * 256, 256));
            if i % 1000 == 0 {
                most = most.max(table.heap_size());
            }
        }
        assert_eq!(table.bytes(), 256_000_000);
        most = most.max(table.heap_size());
        assert!(most < 100_000_000, "a million blocks take {most} bytes");
        for i in 0..1_000_000_u64 {
            assert!(table.remove(0x7f00_0000_0000 + i * 256).is_some());
        }
        assert_eq!((table.len(), table.bytes()), (0, 0));
        assert!(table.heap_size() < 1_000_000, "an empty table keeps {} bytes", table.heap_size());
    }

    #[test]
    fn the_row_that_fills_a_hole_is_found_again() {
        let mut table = Table::default();
        for addr in 1..=5 {
            assert!(table.insert(row(addr, addr * 10)).is_none());
        }
        assert_eq!(table.remove(2).map(|r| r.bytes), Some(20));
        assert_eq!(table.remove(5).map(|r| r.bytes), Some(50));
        assert!(table.remove(5).is_none());
        assert_eq!(table.insert(row(3, 7)).map(|r| r.bytes), Some(30));
        assert_eq!(table.bytes(), 10 + 7 + 40);
        assert_eq!(table.get(4).map(|r| r.bytes), Some(40));
        assert!(table.get(2).is_none());
    }
}
