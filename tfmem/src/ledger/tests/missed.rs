//! Lost records: which figures are bounds, and what `/proc` sets right.

use super::*;
use crate::event::{Missed, MissedTotal};
use crate::ledger::types::Bound;

fn missed(t: &mut Trace, what: Missed, records: u64, bytes: u64) {
    t.push(Body::Missed { what, total: MissedTotal { records, bytes, unsized_records: 0 } });
}

fn bound(low: u64, high: u64, missed: u64, stale: u64) -> Option<Bound> {
    Some(Bound { at_least: Some(low), at_most: Some(high), missed, stale })
}

#[test]
fn without_a_loss_figures_are_exact() {
    let mut t = Trace::new();
    t.chunk(0x1000, 64);
    let p = t.process();
    assert_eq!((p.chunk_bound(), p.heap_bound(), p.region_bound(), p.mapping_bound()), (None, None, None, None));
}

#[test]
fn lost_allocations_raise_and_lost_frees_lower() {
    let mut t = Trace::new();
    t.chunk(0x1000, 100);
    t.chunk(0x2000, 30);
    missed(&mut t, Missed::ChunkTaken, 2, 1000);
    assert_eq!(t.process().chunk_bound(), bound(130, 1130, 2, 0));
    missed(&mut t, Missed::ChunkGivenBack, 1, 0);
    // The largest may be the one that is gone, but not one that was taken later.
    t.chunk(0x3000, 500);
    assert_eq!(t.process().chunk_bound(), bound(530, 1630, 2, 1));
    // An address handed out again tells which one it was.
    t.chunk(0x2000, 40);
    assert_eq!(t.process().chunk_bound(), bound(640, 1640, 2, 0));
    assert_eq!(t.process().heap_bound(), None);
}

#[test]
fn a_size_that_is_not_known_has_no_upper_bound() {
    let mut t = Trace::new();
    t.heap(0x1000, 100);
    let total = MissedTotal { records: 1, bytes: 0, unsized_records: 1 };
    t.push(Body::Missed { what: Missed::HeapTaken, total });
    let bound = t.process().heap_bound().unwrap();
    assert_eq!((bound.at_least, bound.at_most), (Some(100), None));
}

#[test]
fn another_program_is_exact_again() {
    let mut t = Trace::new();
    t.heap(0x1000, 100);
    missed(&mut t, Missed::HeapTaken, 3, 10);
    missed(&mut t, Missed::Mapping, 3, 0);
    t.push(Body::Exec);
    t.heap(0x1000, 7);
    assert_eq!((t.process().heap_bound(), t.process().mapping_bound()), (None, None));
    missed(&mut t, Missed::HeapTaken, 4, 15);
    assert_eq!(t.process().heap_bound(), bound(7, 12, 1, 0));
}

#[test]
fn lost_calls_count_until_another_program_takes_over() {
    let mut t = Trace::new();
    t.chunk(0x1000, 64);
    assert_eq!(t.process().calls_missed(), 0);
    missed(&mut t, Missed::Call, 2, 0);
    missed(&mut t, Missed::Call, 3, 0);
    assert_eq!(t.process().calls_missed(), 3, "totals, not differences");
    t.push(Body::Exec);
    assert_eq!(t.process().calls_missed(), 0);
    missed(&mut t, Missed::Call, 4, 0);
    assert_eq!(t.process().calls_missed(), 1);
}

#[test]
fn mappings_are_exact_once_they_are_read_again() {
    let mut t = Trace::new();
    t.snapshot(&[(0x10000, 0x4000, MappingKind::Anonymous)]);
    missed(&mut t, Missed::Mapping, 2, 0);
    let unknown = Bound { at_least: None, at_most: None, missed: 2, stale: 0 };
    assert_eq!(t.process().mapping_bound(), Some(unknown));
    t.snapshot(&[(0x10000, 0x1000, MappingKind::Anonymous), (0x80000, 0x1000, MappingKind::Anonymous)]);
    assert_eq!(t.process().mapping_bound(), None);
    assert_eq!(t.process().totals().mapping_bytes, 0x2000);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, 0, "what was lost is no drift");
}

#[test]
fn blocks_where_nothing_is_mapped_any_more_are_gone() {
    let mut t = Trace::new();
    t.map(0x10000, 0x4000);
    t.map(0x80000, 0x1000);
    t.heap(0x10010, 64);
    t.heap(0x80010, 32);
    let both = [(0x80000, 0x1000, MappingKind::Anonymous)];
    t.snapshot(&both);
    assert_eq!(t.process().totals().heap_blocks, 2, "without a loss the blocks are believed");
    missed(&mut t, Missed::HeapGivenBack, 1, 0);
    t.snapshot(&both);
    let p = t.process();
    assert_eq!((p.totals().heap_blocks, p.totals().heap_bytes, p.anomalies.found_gone), (1, 32, 1));
}

#[test]
fn a_block_under_a_younger_one_is_gone() {
    let mut t = Trace::new();
    t.map(0x10000, 0x4000);
    t.chunk(0x10000, 0x1000);
    t.chunk(0x10800, 0x100);
    missed(&mut t, Missed::ChunkGivenBack, 1, 0);
    t.snapshot(&[(0x10000, 0x4000, MappingKind::Anonymous)]);
    let p = t.process();
    assert_eq!((p.totals().chunk_bytes, p.chunk_bound()), (0x100, None));
}
