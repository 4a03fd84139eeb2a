//! Which figures of a process are not exact because records of it were lost, and between what the truth lies.
//!
//! A lost allocation is missing in the ledger; a lost free leaves a block in it that is gone (*stale*). Each lost record
//! concerns one address, and the next record that arrives for that address sets it right. So what is really alive is at
//! most what is known and all that was lost, and at least what is known without as many blocks as frees were lost.

use std::collections::BTreeMap;

use crate::event::{Addr, Missed, MissedTotal};
use crate::ledger::process::Process;
use crate::ledger::table::{Row, Table};
use crate::ledger::types::{BlockLayer, Bound, Pool};

/// Losses of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// Running totals by kind, and what they were when the present program began.
    totals: BTreeMap<Missed, MissedTotal>,
    before_exec: BTreeMap<Missed, MissedTotal>,
    /// When something was lost last.
    last: u64,
    /// Stale blocks that were found out, by layer.
    found: [u64; 2],
    /// Records of mappings lost when the map was compared with `/proc` last.
    compared: u64,
    /// Something was lost since then.
    since_compared: bool,
}

impl Losses {
    fn take(&mut self, at: u64, what: Missed, total: MissedTotal) {
        self.totals.insert(what, total);
        self.last = self.last.max(at);
        self.since_compared = true;
    }

    /// A stale block of this layer was found out: an address was handed out that was still alive, or the like.
    pub const fn found(&mut self, layer: BlockLayer) {
        let kind = if matches!(layer, BlockLayer::Chunk) { 0 } else { 1 };
        self.found[kind] += 1;
    }

    /// Another program took over: its figures are exact until more is lost.
    pub fn exec(&mut self) {
        self.before_exec = self.totals.clone();
        self.found = [0; 2];
        self.compared = self.of(Missed::Mapping).records;
    }

    fn of(&self, what: Missed) -> MissedTotal {
        let total = self.totals.get(&what).copied().unwrap_or_default();
        let before = self.before_exec.get(&what).copied().unwrap_or_default();
        MissedTotal {
            records: total.records.saturating_sub(before.records),
            bytes: total.bytes.saturating_sub(before.bytes),
            unsized_records: total.unsized_records.saturating_sub(before.unsized_records),
        }
    }
}

impl Process {
    pub(super) fn missed(&mut self, at: u64, what: Missed, total: MissedTotal) {
        self.losses.take(at, what, total);
    }

    /// Between what the bytes of chunks in use lie; `None`: they are exact.
    #[must_use]
    pub fn chunk_bound(&self) -> Option<Bound> {
        let (taken, given_back) = (Missed::ChunkTaken, Missed::ChunkGivenBack);
        let bound = self.bound(BlockLayer::Chunk, taken, given_back, &self.chunks, |_| true, self.chunks.bytes())?;
        let capacity = self.capacity().into_iter().chain(bound.at_most).min();
        Some(Bound { at_most: capacity, ..bound })
    }

    /// No more than their regions hold can be in use, where all regions are known.
    fn capacity(&self) -> Option<u64> {
        let known = |pool: &Pool| !pool.seeded && (pool.chunks == 0 || !pool.regions.is_empty());
        let all = self.region_bound().is_none() && self.pools.values().all(known);
        // A ledger that lost regions may know more in use than there is room for.
        all.then(|| self.totals().region_bytes.max(self.chunks.bytes()))
    }

    /// The same of heap blocks that are not regions of a pool.
    #[must_use]
    pub fn heap_bound(&self) -> Option<Bound> {
        self.heap_part(|row| row.pool == 0, self.totals().heap_bytes)
    }

    /// The same of the regions of pools.
    #[must_use]
    pub fn region_bound(&self) -> Option<Bound> {
        self.heap_part(|row| row.pool != 0, self.region_bytes)
    }

    /// The same of memory of GPUs: how much the lost calls were about is not known.
    #[must_use]
    pub fn gpu_bound(&self) -> Option<Bound> {
        let lost = self.losses.of(Missed::Gpu).records;
        (lost > 0).then_some(Bound { at_least: None, at_most: None, missed: lost, stale: lost })
    }

    /// The same of mappings: nothing is known of them until they are read again.
    #[must_use]
    pub fn mapping_bound(&self) -> Option<Bound> {
        let lost = self.losses.of(Missed::Mapping).records.saturating_sub(self.losses.compared);
        (lost > 0).then_some(Bound { at_least: None, at_most: None, missed: lost, stale: 0 })
    }

    /// Records of calls that were lost. Each may have told of one handle of a class that was opened, or of one that was
    /// closed; what is counted was seen.
    #[must_use]
    pub fn calls_missed(&self) -> u64 {
        self.losses.of(Missed::Call).records
    }

    fn heap_part(&self, part: impl Fn(&Row) -> bool, known: u64) -> Option<Bound> {
        self.bound(BlockLayer::Heap, Missed::HeapTaken, Missed::HeapGivenBack, &self.heap, part, known)
    }

    fn bound(
        &self,
        layer: BlockLayer,
        taken: Missed,
        given_back: Missed,
        table: &Table,
        part: impl Fn(&Row) -> bool,
        known: u64,
    ) -> Option<Bound> {
        let missed = self.losses.of(taken);
        let stale = self.losses.of(given_back).records.saturating_sub(self.losses.found[layer as usize]);
        if missed.records == 0 && stale == 0 {
            return None;
        }
        let doubtful = table.rows().iter().filter(|row| row.born <= self.losses.last && part(row));
        let at_least = known.saturating_sub(largest(doubtful.map(|row| row.bytes).collect(), stale));
        let at_most = (missed.unsized_records == 0).then(|| known.saturating_add(missed.bytes));
        Some(Bound { at_least: Some(at_least), at_most, missed: missed.records, stale })
    }

    /// After a loss, what `/proc` shows proves some blocks gone: those that lie where nothing is mapped any more, and
    /// those that a younger block of their layer overlaps.
    pub(super) fn resynchronise(&mut self) {
        self.losses.compared = self.losses.of(Missed::Mapping).records;
        if !std::mem::take(&mut self.losses.since_compared) {
            return;
        }
        let unmapped: Vec<Addr> =
            self.heap.rows().iter().map(|row| row.addr).filter(|&addr| self.map.find(addr).is_none()).collect();
        // Not counted as found out: one whose free is still on its way may be among them.
        for addr in unmapped {
            self.heap_is_gone(addr);
        }
        for addr in overlapped(self.heap.rows()) {
            self.losses.found(BlockLayer::Heap);
            self.heap_is_gone(addr);
        }
        for addr in overlapped(self.chunks.rows()) {
            self.losses.found(BlockLayer::Chunk);
            self.chunk_is_gone(addr);
        }
    }
}

/// The sum of the `count` largest.
fn largest(mut bytes: Vec<u64>, count: u64) -> u64 {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
    if count > 0 && count < bytes.len() {
        bytes.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
    }
    bytes.iter().take(count).fold(0, |sum, &n| sum.saturating_add(n))
}

/// Blocks that a younger one overlaps.
fn overlapped(rows: &[Row]) -> Vec<Addr> {
    let mut blocks: Vec<(Addr, Addr, u64)> =
        rows.iter().map(|row| (row.addr, row.addr.saturating_add(row.bytes), row.born)).collect();
    blocks.sort_unstable();
    let mut gone = Vec::new();
    // Of those seen so far that are not gone, the one that reaches farthest.
    let mut reach: Option<(Addr, Addr, u64)> = None;
    for block in blocks {
        match reach {
            Some(before) if before.1 > block.0 => {
                if before.2 < block.2 {
                    gone.push(before.0);
                    reach = Some(block);
                } else {
                    gone.push(block.0);
                }
            }
            _ => reach = Some(block),
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(addr: Addr, bytes: u64, born: u64) -> Row {
        Row { addr, bytes, requested: bytes, born, step: 0, tid: 1, owner: 0, site: 0, pool: 0 }
    }

    #[test]
    fn the_younger_of_two_blocks_in_one_place_is_the_one_that_is_there() {
        let rows = [row(0, 100, 5), row(50, 100, 9), row(200, 10, 1), row(300, 50, 8), row(310, 5, 3)];
        assert_eq!(overlapped(&rows), [0, 310]);
        assert!(overlapped(&[row(0, 10, 1), row(10, 10, 2)]).is_empty());
    }

    #[test]
    fn the_largest_are_taken() {
        assert_eq!(largest(vec![1, 5, 3, 4], 2), 9);
        assert_eq!(largest(vec![1, 5], 7), 6);
        assert_eq!(largest(vec![1], 0), 0);
    }
}
