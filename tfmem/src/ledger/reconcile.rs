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
    told: Told,
}

/// Whether an event tells of such a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Always,
    /// System V segments and the rings of asynchronous I/O: by probes on the kernel's own functions.
    BySome,
    /// Stacks that grow, and the kernel's own pages.
    Never,
}

/// Bytes that an observation corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drift {
    /// An event should have told of them.
    pub unexpected: u64,
    /// Not every way of following the memory map tells of such mappings.
    pub untold: u64,
}

impl MemoryMap {
    /// Takes over what the observation shows and returns what had to be corrected. The first comparison of a program
    /// returns nothing: the ledger starts from it.
    pub(super) fn reconcile(&mut self, seen: &[Mapping]) -> Drift {
        let first = !self.compared;
        self.compared = true;
        let mut drift = Drift::default();
        let shown = shown(seen);
        let known: Vec<MappedRange> = self.iter().collect();

        let covers: Vec<(Addr, Addr)> = shown.iter().map(|m| (m.start, m.end)).collect();
        for range in &known {
            each_gap(range.start, range.end(), &covers, |from, to| {
                if !matches!(range.kind, MappingKind::Stack | MappingKind::Kernel) {
                    drift.unexpected = drift.unexpected.saturating_add(to - from);
                }
                self.carve(from, to, |_| {});
            });
        }
        let covers: Vec<(Addr, Addr)> = known.iter().map(|r| (r.start, r.end())).collect();
        for mapping in &shown {
            each_gap(mapping.start, mapping.end, &covers, |from, to| {
                match mapping.told {
                    Told::Always => drift.unexpected = drift.unexpected.saturating_add(to - from),
                    Told::BySome => drift.untold = drift.untold.saturating_add(to - from),
                    Told::Never => {}
                }
                self.put(from, to, Piece::found(mapping.kind));
            });
        }
        self.take_kinds(&shown);
        self.take_break(&shown);
        if first { Drift::default() } else { drift }
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

fn told_by_events(mapping: &Mapping) -> Told {
    let special = mapping.name.starts_with('[') && mapping.name != "[heap]" && !mapping.name.starts_with("[anon");
    if special || matches!(mapping.kind, MappingKind::Stack | MappingKind::Kernel) {
        Told::Never
    } else if mapping.name.starts_with("/SYSV") || mapping.name.starts_with("/[aio]") {
        Told::BySome
    } else {
        Told::Always
    }
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
