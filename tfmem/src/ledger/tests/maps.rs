use super::*;
use MappingKind::{Anonymous, File, Heap, Kernel, Shared, Stack};

const P: u64 = 4096;

/// Page, pages, birth.
fn ranges(t: &Trace) -> Vec<(u64, u64, Option<u64>)> {
    let map = t.process().memory_map();
    let ranges: Vec<_> = map.iter().map(|r| (r.start / P, r.len / P, r.born)).collect();
    assert_eq!(map.bytes(), ranges.iter().map(|r| r.1 * P).sum::<u64>());
    assert_eq!(map.len(), ranges.len());
    ranges
}

#[test]
fn a_mapping_replaces_what_it_covers() {
    let mut t = Trace::new();
    t.map(10 * P, 10 * P);
    t.map(12 * P, 2 * P - 1);
    assert_eq!(ranges(&t), [(10, 2, Some(1)), (12, 2, Some(2)), (14, 6, Some(1))]);
    t.map(5 * P, 30 * P);
    assert_eq!(ranges(&t), [(5, 30, Some(3))]);
    t.push(Body::Map { start: 0, len: P, prot: 1, flags: 2, file: true });
    t.push(Body::Map { start: P, len: P, prot: 1, flags: 0x21, file: false });
    let kinds: Vec<_> = t.process().memory_map().iter().map(|r| r.kind).collect();
    assert_eq!(kinds, [File, Shared, Anonymous]);
}

#[test]
fn a_part_can_be_unmapped() {
    let mut t = Trace::new();
    t.map(10 * P, 10 * P);
    t.unmap(12 * P, 1);
    t.unmap(19 * P, 5 * P);
    t.unmap(10 * P, P);
    assert_eq!(ranges(&t), [(11, 1, Some(1)), (13, 6, Some(1))]);
    let found = t.process().memory_map().find(13 * P + 5).unwrap();
    assert_eq!((found.start, found.tid), (13 * P, PID));
    assert!(t.process().memory_map().find(12 * P).is_none());
    t.unmap(0, 100 * P);
    assert!(t.process().memory_map().is_empty());
}

fn remap(t: &mut Trace, old: (u64, u64), new: (u64, u64), keep_old: bool) {
    t.push(Body::Remap {
        old_start: old.0 * P,
        old_len: old.1 * P,
        start: new.0 * P,
        len: new.1 * P,
        keep_old,
        took: 0,
    });
}

#[test]
fn what_moves_keeps_its_birth() {
    let mut t = Trace::new();
    t.map(10 * P, 4 * P);
    t.map(12 * P, P);
    t.map(50 * P, 20 * P);
    remap(&mut t, (11, 3), (52, 5), false);
    let moved = [(52, 1, Some(1)), (53, 1, Some(2)), (54, 1, Some(1)), (55, 2, Some(1))];
    assert_eq!(ranges(&t)[..2], [(10, 1, Some(1)), (50, 2, Some(3))]);
    assert_eq!(ranges(&t)[2..6], moved);
    assert_eq!(ranges(&t)[6..], [(57, 13, Some(3))]);
}

#[test]
fn remap_grows_shrinks_and_keeps() {
    let mut t = Trace::new();
    t.map(10 * P, 4 * P);
    remap(&mut t, (10, 4), (10, 2), false);
    assert_eq!(ranges(&t), [(10, 2, Some(1))]);
    remap(&mut t, (10, 2), (10, 3), false);
    assert_eq!(ranges(&t), [(10, 2, Some(1)), (12, 1, Some(1))]);
    remap(&mut t, (10, 3), (30, 3), true);
    assert_eq!(ranges(&t), [(10, 2, Some(1)), (12, 1, Some(1)), (30, 2, Some(1)), (32, 1, Some(1))]);
    // No old length: a second view, born now.
    remap(&mut t, (10, 0), (40, 1), false);
    assert_eq!(ranges(&t).last(), Some(&(40, 1, Some(5))));
    // From where the ledger knows nothing: there, but of unknown age.
    remap(&mut t, (90, 2), (60, 2), false);
    assert_eq!(ranges(&t).last(), Some(&(60, 2, None)));
}

/// The old place is free before the call returns: another thread's mapping there is not what moved.
#[test]
fn what_another_thread_got_meanwhile_stays() {
    let mut t = Trace::new();
    t.map(10 * P, 4 * P);
    t.map(12 * P, P);
    let (old_start, old_len, start, len) = (10 * P, 4 * P, 50 * P, 4 * P);
    t.push(Body::Remap { old_start, old_len, start, len, keep_old: false, took: 2 });
    let moved = [(50, 2, Some(1)), (52, 1, None), (53, 1, Some(1))];
    assert_eq!(ranges(&t)[0], (12, 1, Some(2)));
    assert_eq!(ranges(&t)[1..], moved);
}

#[test]
fn the_heap_grows_from_the_first_break_seen() {
    let mut t = Trace::new();
    t.push(Body::Brk { end: 100 * P });
    assert!(ranges(&t).is_empty());
    t.push(Body::Brk { end: 102 * P + 5 });
    t.push(Body::Brk { end: 102 * P + 9 });
    t.push(Body::Brk { end: 104 * P });
    assert_eq!(ranges(&t), [(100, 3, Some(2)), (103, 1, Some(4))]);
    assert!(t.process().memory_map().iter().all(|r| r.kind == Heap));
    t.push(Body::Brk { end: 101 * P });
    assert_eq!(ranges(&t), [(100, 1, Some(2))]);
    // A break below the start takes nothing that is not heap.
    t.map(10 * P, P);
    t.push(Body::Brk { end: 0 });
    assert_eq!(ranges(&t), [(10, 1, Some(6))]);
}

#[test]
fn the_heap_of_an_observation_is_where_the_break_is() {
    let mut t = Trace::new();
    t.snapshot(&[(100 * P, 10 * P, Heap)]);
    t.push(Body::Brk { end: 112 * P });
    assert_eq!(ranges(&t), [(100, 10, None), (110, 2, Some(2))]);
    t.push(Body::Brk { end: 105 * P });
    assert_eq!(ranges(&t), [(100, 5, None)]);
    // A break whose event was lost is put right.
    t.snapshot(&[(100 * P, 7 * P, Heap)]);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, 2 * P);
    t.push(Body::Brk { end: 108 * P });
    assert_eq!(ranges(&t), [(100, 5, None), (105, 2, None), (107, 1, Some(5))]);
}

#[test]
fn advice_leaves_the_map_alone() {
    let mut t = Trace::new();
    t.map(10 * P, 4 * P);
    for advice in [0, 3, 4, 8, 14] {
        t.push(Body::Advise { start: 10 * P, len: P, advice });
    }
    assert_eq!(t.process().advised_bytes, 2 * P);
    assert_eq!(ranges(&t), [(10, 4, Some(1))]);
}

#[test]
fn the_first_comparison_is_where_the_ledger_starts() {
    let mut t = Trace::new();
    t.map(10 * P, 4 * P);
    assert_eq!(t.snapshot(&[(12 * P, 4 * P, Anonymous), (90 * P, 2 * P, Stack)]), [Change::Snapshot]);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, 0);
    assert_eq!(ranges(&t), [(12, 2, Some(1)), (14, 2, None), (90, 2, None)]);
    assert_eq!(t.process().identity.snapshot.as_ref().unwrap().0, 2);
}

#[test]
fn drift_is_what_events_should_have_told() {
    let mut t = Trace::new();
    let base = [(10 * P, 4 * P, Anonymous), (90 * P, 2 * P, Stack)];
    t.snapshot(&base);
    // A stack that grows, pages of the kernel, and one mapping shown as three after `mprotect`: no drift.
    t.snapshot(&[
        (10 * P, P, Anonymous),
        (11 * P, P, Anonymous),
        (12 * P, 2 * P, Anonymous),
        (85 * P, 7 * P, Stack),
        (95 * P, P, Kernel),
    ]);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, 0);
    assert_eq!(ranges(&t).len(), 4);
    // A mapping whose event was lost, and an unmap that was.
    t.map(30 * P, 8 * P);
    t.snapshot(&[(10 * P, 3 * P, Anonymous), (20 * P, 5 * P, File), (30 * P, 8 * P, Anonymous)]);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, P + 5 * P);
    assert_eq!(ranges(&t), [(10, 3, None), (20, 5, None), (30, 8, Some(3))]);
    // Totals alone compare nothing.
    t.map(60 * P, P);
    t.snapshot(&[]);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, 6 * P);
    // After `exec` the next comparison is the first again.
    t.push(Body::Exec);
    assert!(ranges(&t).is_empty());
    t.map(70 * P, P);
    t.snapshot(&[(10 * P, 3 * P, File), (70 * P, P, Anonymous)]);
    assert_eq!(t.process().anomalies.mapping_drift_bytes, 0);
    assert_eq!(ranges(&t), [(10, 3, None), (70, 1, Some(8))]);
}

#[test]
fn an_observation_knows_better_what_a_range_is() {
    let mut t = Trace::new();
    t.map(10 * P, 4 * P);
    t.snapshot(&[(10 * P, P, Anonymous), (11 * P, 2 * P, Stack), (13 * P, P, Anonymous)]);
    assert_eq!(ranges(&t), [(10, 1, Some(1)), (11, 2, Some(1)), (13, 1, Some(1))]);
    assert_eq!(t.process().memory_map().find(11 * P).unwrap().kind, Stack);
}
