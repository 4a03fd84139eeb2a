//! The ledger's address space against what `/proc` shows.
//!
//! `mprotect` splits one mapping into several entries and merges them again, so coverage is compared, never entries.

use crate::event::{Addr, Mapping, MappingKind};
use crate::ledger::map::{Break, MappedRange, MemoryMap, PAGE, Piece};

/// An entry of `/proc/PID/maps`, cut so that none overlaps the one before.
struct Shown {
    start: Addr,
    end: Addr,
    kind: MappingKind,
    /// Whether an event tells of such a mapping.
    told: bool,
}

impl MemoryMap {
    /// Takes over what the observation shows and returns the bytes that had to be corrected, without those that no
    /// event could have told. The first comparison of a program returns 0: the ledger starts from it.
    pub(super) fn reconcile(&mut self, seen: &[Mapping]) -> u64 {
        let first = !self.compared;
        self.compared = true;
        let mut drift = 0_u64;
        let shown = shown(seen);
        let known: Vec<MappedRange> = self.iter().collect();

        let covers: Vec<(Addr, Addr)> = shown.iter().map(|m| (m.start, m.end)).collect();
        for range in &known {
            each_gap(range.start, range.end(), &covers, |from, to| {
                if !matches!(range.kind, MappingKind::Stack | MappingKind::Kernel) {
                    drift = drift.saturating_add(to - from);
                }
                self.carve(from, to, |_| {});
            });
        }
        let covers: Vec<(Addr, Addr)> = known.iter().map(|r| (r.start, r.end())).collect();
        for mapping in &shown {
            each_gap(mapping.start, mapping.end, &covers, |from, to| {
                if mapping.told {
                    drift = drift.saturating_add(to - from);
                }
                self.put(from, to, Piece::found(mapping.kind));
            });
        }
        self.take_kinds(&shown);
        self.take_break(&shown);
        if first { 0 } else { drift }
    }

    /// Where both agree that something is there, `/proc` knows better what it is.
    fn take_kinds(&mut self, shown: &[Shown]) {
        for mapping in shown {
            let wrong: Vec<MappedRange> =
                self.overlapping(mapping.start, mapping.end).filter(|r| r.kind != mapping.kind).collect();
            for range in wrong {
                let (from, to) = (range.start.max(mapping.start), range.end().min(mapping.end));
                self.put(from, to, Piece { kind: mapping.kind, ..Piece::of(&range) });
            }
        }
    }

    fn take_break(&mut self, shown: &[Shown]) {
        let mut heaps = shown.iter().filter(|m| m.kind == MappingKind::Heap);
        let Some(lowest) = heaps.next() else { return };
        let highest = heaps.next_back().map_or(lowest.end, |m| m.end);
        self.heap = Some(match self.heap {
            // The break need not lie on a page border: one that ends in the last page is right as it is.
            Some(heap) if heap.end <= highest && highest - heap.end < PAGE => {
                Break { start: heap.start.min(lowest.start), end: heap.end }
            }
            Some(heap) => Break { start: heap.start.min(lowest.start), end: highest },
            None => Break { start: lowest.start, end: highest },
        });
    }
}

fn shown(seen: &[Mapping]) -> Vec<Shown> {
    let mut sorted: Vec<&Mapping> = seen.iter().collect();
    sorted.sort_by_key(|m| m.start);
    let mut at = 0;
    let mut shown = Vec::with_capacity(sorted.len());
    for m in sorted {
        let (start, end) = (m.start.max(at), m.start.saturating_add(m.len));
        if start < end {
            shown.push(Shown { start, end, kind: m.kind, told: told_by_events(m) });
            at = end;
        }
    }
    shown
}

/// Whether an event tells of such a mapping: stacks, the kernel's own pages, System V segments and the rings of
/// asynchronous I/O come about in other ways.
fn told_by_events(mapping: &Mapping) -> bool {
    let special = mapping.name.starts_with('[') && mapping.name != "[heap]" && !mapping.name.starts_with("[anon");
    !matches!(mapping.kind, MappingKind::Stack | MappingKind::Kernel)
        && !special
        && !mapping.name.starts_with("/SYSV")
        && !mapping.name.starts_with("/[aio]")
}

/// Calls `gap` for each part of `start..end` that none of `covers` (sorted, disjoint) covers.
fn each_gap(start: Addr, end: Addr, covers: &[(Addr, Addr)], mut gap: impl FnMut(Addr, Addr)) {
    let mut at = start;
    let first = covers.partition_point(|c| c.1 <= start);
    for &(from, to) in covers.iter().skip(first) {
        if from >= end {
            break;
        }
        if from > at {
            gap(at, from);
        }
        at = at.max(to);
    }
    if at < end {
        gap(at, end);
    }
}
