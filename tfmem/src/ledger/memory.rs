//! Chunks, heap blocks and pools of a process.

use crate::event::{Addr, Event, Origin};
use crate::ledger::process::Process;
use crate::ledger::table::Row;
use crate::ledger::types::{BlockLayer, Pool, Region};

impl Process {
    pub(super) fn chunk_alloc(&mut self, event: &Event, pool: Addr, addr: Addr, sizes: (u64, u64), origin: &Origin) {
        if addr == 0 {
            return;
        }
        // An extension of this pool makes no other change than regions.
        self.lost_extend(event, pool, &mut Vec::new());
        let (requested, bytes) = sizes;
        let row = self.row(event, addr, requested, bytes, origin);
        let row = Row { pool: self.names.pools.id(pool), ..row };
        if let Some(old) = self.chunks.insert(row) {
            self.anomalies.reused_alive += 1;
            self.losses.found(BlockLayer::Chunk);
            self.chunk_left(&old);
        }
        let pool = self.pool(pool, event.at);
        pool.chunks += 1;
        pool.in_use = pool.in_use.wrapping_add(bytes);
        pool.peak_in_use = pool.peak_in_use.max(pool.in_use);
        pool.handed_out += 1;
        pool.handed_out_bytes = pool.handed_out_bytes.saturating_add(bytes);
    }

    pub(super) fn chunk_free(&mut self, at: u64, pool: Addr, addr: Addr) {
        if addr == 0 {
            return;
        }
        if let Some(row) = self.chunks.remove(addr) {
            self.chunk_left(&row);
        } else {
            let seeded = self.pool(pool, at).seeded;
            self.unknown_free(seeded);
        }
    }

    pub(super) fn heap_alloc(&mut self, event: &Event, addr: Addr, bytes: u64, origin: &Origin) {
        if addr == 0 {
            return;
        }
        let mut row = self.row(event, addr, bytes, bytes, origin);
        let extending = self.extending(event.tid, addr);
        if let Some(pool) = extending {
            row.pool = self.names.pools.id(pool);
        }
        if let Some(thread) = self.threads.get_mut(&event.tid) {
            thread.last_freed = 0;
        }
        if let Some(old) = self.heap.insert(row) {
            self.anomalies.reused_alive += 1;
            self.losses.found(BlockLayer::Heap);
            self.region_left(&old);
        }
        if let Some(pool) = extending {
            self.regions += 1;
            self.region_bytes = self.region_bytes.wrapping_add(bytes);
            let pool = self.pool(pool, event.at);
            pool.extended += 1;
            let i = pool.regions.partition_point(|r| r.start < addr);
            pool.regions.insert(i, Region { start: addr, bytes, born: event.at });
        }
    }

    pub(super) fn heap_free(&mut self, tid: u32, addr: Addr) {
        if addr == 0 {
            return;
        }
        if let Some(row) = self.heap.remove(addr) {
            self.region_left(&row);
        } else if self.threads.get(&tid).is_some_and(|t| t.last_freed == addr) {
            // The sized free called the plain one: one free, seen twice.
            self.threads.entry(tid).or_default().last_freed = 0;
            return;
        } else {
            let attached = self.attached();
            self.unknown_free(attached);
        }
        self.threads.entry(tid).or_default().last_freed = addr;
    }

    pub(super) fn pool_new(&mut self, pool: &Pool) {
        if let Some(known) = self.pools.get_mut(&pool.addr) {
            if !known.seeded && known.handed_out == 0 && known.extended == 0 {
                // The complete constructor called the base one: one pool, seen twice.
                known.name = pool.name.clone().or(known.name.take());
                known.limit = pool.limit;
                return;
            }
            self.anomalies.reused_alive += 1;
            self.pool_destroy(pool.addr);
        }
        self.pool_handles.opened += 1;
        self.pools.insert(pool.addr, pool.clone());
    }

    /// The pool is gone. Chunks nobody gave back go with it; its regions are plain blocks until they are freed.
    pub(super) fn pool_destroy(&mut self, addr: Addr) {
        let Some(pool) = self.pools.remove(&addr) else { return };
        self.pool_handles.closed += 1;
        for region in &pool.regions {
            self.no_region(region);
        }
        self.drop_chunks(addr, 0, u64::MAX);
    }

    /// An extension that failed made no region: what its thread allocated inside is a block like others.
    pub(super) fn extend_failed(&mut self, pool: Addr, blocks: &[Addr]) {
        for &block in blocks {
            let Some(pool) = self.pools.get_mut(&pool) else { return };
            if let Ok(i) = pool.regions.binary_search_by_key(&block, |r| r.start) {
                let region = pool.regions.remove(i);
                pool.extended = pool.extended.saturating_sub(1);
                self.no_region(&region);
            }
        }
    }

    fn no_region(&mut self, region: &Region) {
        if self.gpu.forget_region(region.start) {
            return;
        }
        self.heap.set_pool(region.start, 0);
        self.regions = self.regions.saturating_sub(1);
        self.region_bytes = self.region_bytes.wrapping_sub(region.bytes);
    }

    /// A heap block went. If it was a region, the pool has it no more, and no chunk can be left in it.
    fn region_left(&mut self, row: &Row) {
        let Some(addr) = self.names.pools.get(row.pool) else { return };
        self.regions = self.regions.saturating_sub(1);
        self.region_bytes = self.region_bytes.wrapping_sub(row.bytes);
        self.region_is_gone(addr, row.addr, row.bytes);
    }

    /// The pool has this region no more, and no chunk can be left in it.
    pub(super) fn region_is_gone(&mut self, addr: Addr, start: Addr, bytes: u64) {
        let Some(pool) = self.pools.get_mut(&addr) else { return };
        pool.regions.retain(|r| r.start != start);
        if pool.chunks > 0 {
            self.drop_chunks(addr, start, start.saturating_add(bytes));
        }
    }

    /// Chunks of a pool that begin in `start..end` are gone although nobody was seen giving them back.
    fn drop_chunks(&mut self, pool: Addr, start: Addr, end: Addr) {
        let Some(id) = self.names.pools.find(pool) else { return };
        let gone: Vec<Addr> = self
            .chunks
            .rows()
            .iter()
            .filter(|r| r.pool == id && (start..end).contains(&r.addr))
            .map(|r| r.addr)
            .collect();
        for addr in gone {
            if let Some(row) = self.chunks.remove(addr) {
                self.anomalies.orphaned_chunks += 1;
                self.chunk_left(&row);
            }
        }
    }

    /// A block is gone, as was found out; its end was lost.
    pub(super) fn heap_is_gone(&mut self, addr: Addr) {
        if let Some(row) = self.heap.remove(addr) {
            self.anomalies.found_gone += 1;
            self.region_left(&row);
        }
    }

    pub(super) fn chunk_is_gone(&mut self, addr: Addr) {
        if let Some(row) = self.chunks.remove(addr) {
            self.anomalies.found_gone += 1;
            self.chunk_left(&row);
        }
    }

    fn chunk_left(&mut self, row: &Row) {
        if let Some(pool) = self.names.pools.get(row.pool).and_then(|addr| self.pools.get_mut(&addr)) {
            pool.chunks = pool.chunks.saturating_sub(1);
            pool.in_use = pool.in_use.wrapping_sub(row.bytes);
        }
    }

    /// The pool at this address; one that is not known was there before its constructor could be seen.
    pub(super) fn pool(&mut self, addr: Addr, at: u64) -> &mut Pool {
        self.pools.entry(addr).or_insert_with(|| Pool {
            addr,
            name: None,
            limit: 0,
            opened: at,
            regions: Vec::new(),
            chunks: 0,
            in_use: 0,
            peak_in_use: 0,
            handed_out: 0,
            handed_out_bytes: 0,
            extended: 0,
            seeded: true,
        })
    }

    pub(super) const fn unknown_free(&mut self, expected: bool) {
        if self.inherits {
            self.anomalies.inherited_frees += 1;
        } else if expected {
            self.anomalies.expected_frees += 1;
        } else {
            self.anomalies.unpaired_frees += 1;
        }
    }

    fn row(&mut self, event: &Event, addr: Addr, requested: u64, bytes: u64, origin: &Origin) -> Row {
        let owner = self.owner(event.tid, origin).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
        Row {
            addr,
            bytes,
            requested,
            born: event.at,
            step: origin.step,
            tid: event.tid,
            owner,
            site: self.names.site(origin, event.stack, self.steps.launch(origin)),
            pool: 0,
        }
    }
}
