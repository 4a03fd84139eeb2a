//! Blocks come and go.

use super::{GpuBlock, Gpus};
use crate::event::{Addr, GpuSpace};

impl Gpus {
    /// Puts a block in; the one that was alive there is returned.
    pub(super) fn insert(&mut self, block: GpuBlock) -> Option<GpuBlock> {
        let key = (block.kind.space(), block.addr);
        let old = self.remove(key);
        let sum = self.sums.entry((block.kind, block.device)).or_default();
        *sum = sum.wrapping_add(block.bytes);
        if block.region_of.is_some() {
            self.regions += 1;
            self.region_bytes = self.region_bytes.wrapping_add(block.bytes);
        }
        self.blocks.insert(key, block);
        old
    }

    /// Takes a block out, with what hangs on it in this module.
    pub(super) fn remove(&mut self, key: (GpuSpace, Addr)) -> Option<GpuBlock> {
        let block = self.blocks.remove(&key)?;
        let sum = self.sums.entry((block.kind, block.device)).or_default();
        *sum = sum.wrapping_sub(block.bytes);
        self.no_region(&block);
        if let Some(pool) = block.stream_pool {
            self.left_pool(pool, block.bytes);
        }
        Some(block)
    }

    const fn no_region(&mut self, block: &GpuBlock) {
        if block.region_of.is_some() {
            self.regions = self.regions.saturating_sub(1);
            self.region_bytes = self.region_bytes.wrapping_sub(block.bytes);
        }
    }

    /// The block at this address is a region no more, if it was one.
    pub(in crate::ledger) fn forget_region(&mut self, start: Addr) -> bool {
        let Some(mut block) = self.region(start).copied() else { return false };
        self.no_region(&block);
        block.region_of = None;
        self.blocks.insert((block.kind.space(), block.addr), block);
        true
    }

    /// One reference to physical memory goes; the last one takes the memory with it.
    pub(super) fn drop_reference(&mut self, handle: Addr) -> bool {
        let key = (GpuSpace::Handle, handle);
        let Some(block) = self.blocks.get_mut(&key) else { return false };
        block.references = block.references.saturating_sub(1);
        if block.references == 0 {
            self.remove(key);
        }
        true
    }

    pub(super) fn add_reference(&mut self, handle: Addr) -> bool {
        let block = self.blocks.get_mut(&(GpuSpace::Handle, handle));
        block.map(|block| block.references = block.references.saturating_add(1)).is_some()
    }
}
