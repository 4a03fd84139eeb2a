//! Sessions that were not closed, closed, closed and not deleted, and several at once.

use super::{boundary, check, only, verdict};
use crate::report::fail_above;
use crate::report::model::{BoundaryKind, Cause, Layer};
use crate::retention::Options;
use crate::retention::testing::{MIB, report, report_with};

/// Four sessions, each with a variable `w` of 64 MiB, on the heap.
pub(super) fn four_sessions() -> String {
    let mut lines = String::from("0 start\n1 10 process train.py\n5 10 tensorflow 2.21.0\n");
    for i in 1..=4_u64 {
        let at = i * 1000;
        lines += &format!(
            "{at} 10 new a{i}\n{} 10 run a{i}\n{} 10 heap {i}0000000 64M w/Initializer/zeros\n{} 10 /run\n",
            at + 10,
            at + 20,
            at + 30
        );
    }
    lines
}

#[test]
fn sessions_nobody_closed_are_named_with_their_bytes() {
    let r = report(&(four_sessions() + "40000 10 exit 0\n43000 end\n"));
    check(&r);
    let p = only(&r);
    let v = verdict(&p.verdicts, Cause::SessionOpen).unwrap();
    assert_eq!(v.bytes, 256 * MIB);
    assert_eq!(v.summary, "256.0 MiB is held by 4 sessions that nobody closed (oldest 39 s).");
    assert!(v.evidence[0].contains("64.0 MiB in each of 4 sessions: variable w"), "{:?}", v.evidence);
    assert!(v.gives_back.contains("sess.close()"));
    assert_eq!(p.verdicts.len(), 1);
    let b = boundary(p, BoundaryKind::ProcessExit, 0);
    assert_eq!(v.refs.boundary, Some(b.id));
    assert_eq!(b.survivors.len(), 4);
    for (i, s) in b.survivors.iter().enumerate() {
        assert_eq!((s.layer, s.bytes, s.count), (Layer::Heap, 64 * MIB, 1));
        assert_eq!(s.owner.as_deref(), Some(format!("session {}", i + 1).as_str()));
        assert_eq!(s.place.variable.as_deref(), Some("w"));
    }
    let s = &p.handles.sessions;
    assert_eq!((s.opened, s.closed, s.open.len()), (4, 0, 4));
    assert_eq!(s.open[0].bytes, 64 * MIB);
    assert_eq!(p.exit.as_deref(), Some("exit 0"));
    assert_eq!(r.started_at, "2023-11-14T22:13:20.000000Z");
    assert!(fail_above(&r, 256 * MIB - 1) && !fail_above(&r, 256 * MIB));
}

#[test]
fn what_was_closed_in_time_is_freed_and_blamed_on_nobody() {
    let mut lines = four_sessions();
    for i in 1..=4 {
        let at = 10_000 + i * 100;
        lines += &format!("{at} 10 close a{i}\n{} 10 unheap {i}0000000\n{} 10 /close\n", at + 1, at + 2);
    }
    let r = report(&(lines + "20000 10 exit 0\n23000 end\n"));
    check(&r);
    let p = only(&r);
    assert!(p.verdicts.is_empty(), "{:?}", p.verdicts);
    assert_eq!(p.released.len(), 1);
    let released = &p.released[0];
    assert_eq!((released.bytes, released.count), (256 * MIB, 4));
    assert_eq!(released.summary, "closing 4 sessions gave back 256.0 MiB, 10 s after the start");
    assert_eq!(p.boundaries.len(), 5);
    for b in &p.boundaries {
        assert!(b.survivors.is_empty() && b.verdicts.is_empty());
    }
    let first = boundary(p, BoundaryKind::SessionClosed, 0);
    assert_eq!(first.before.layers.heap, Some(256 * MIB));
    assert_eq!(first.after.layers.heap, Some(0));
    assert_eq!((first.grace_ms, first.label.as_str()), (2000, "session 1 closed"));
    assert!(!fail_above(&r, 0));
}

#[test]
fn closed_through_c_and_never_deleted() {
    let lines = four_sessions() + "10000 10 close a2\n10001 10 /close\n20000 10 exit 0\n20001 end\n";
    let r = report(&lines);
    check(&r);
    let p = only(&r);
    let closed = boundary(p, BoundaryKind::SessionClosed, 0);
    assert_eq!(verdict(&closed.verdicts, Cause::SessionNotDeleted).unwrap().bytes, 64 * MIB);
    // Sessions that are open do what they should when another one closes.
    assert!(verdict(&closed.verdicts, Cause::SessionOpen).is_none());
    assert_eq!(verdict(&p.verdicts, Cause::SessionNotDeleted).unwrap().bytes, 64 * MIB);
    assert_eq!(verdict(&p.verdicts, Cause::SessionOpen).unwrap().bytes, 192 * MIB);
    assert!(p.released.is_empty());
}

#[test]
fn the_delete_gets_what_it_gave_back_even_within_the_grace_time_of_the_close() {
    let lines = four_sessions()
        + "10000 10 close a1\n10001 10 /close\n10500 10 delete a1\n10501 10 unheap 10000000\n10502 10 /delete\n\
           20000 10 exit 0\n20001 end\n";
    let r = report(&lines);
    check(&r);
    let p = only(&r);
    assert_eq!(p.released.len(), 1);
    assert_eq!(p.released[0].summary, "deleting 1 session gave back 64.0 MiB, 10 s after the start");
    assert_eq!(boundary(p, BoundaryKind::SessionDeleted, 0).survivors.len(), 0);
}

#[test]
fn a_delete_that_closes_on_its_way_is_one_boundary() {
    let lines = four_sessions()
        + "10000 10 delete a1\n10001 10 unheap 10000000\n10002 10 /delete\n20000 10 exit 0\n20001 end\n";
    let r = report(&lines);
    let p = only(&r);
    assert_eq!(
        p.boundaries.iter().map(|b| b.kind).collect::<Vec<_>>(),
        [BoundaryKind::SessionDeleted, BoundaryKind::ProcessExit]
    );
    assert_eq!(p.released[0].bytes, 64 * MIB);
}

#[test]
fn overlapping_sessions_do_not_blame_each_other() {
    // Blocks without an owner: made outside any run, while both sessions were open.
    let lines = "0 start\n1 10 process p.py\n2 10 tensorflow 2.21.0\n\
        100 10 new a1\n200 10 new a2\n300 10/11 heap 10000000 8M\n\
        400 10 run a2\n410 10 heap 20000000 16M x\n420 10 /run\n\
        1000 10 close a1\n1001 10 /close\n6000 10 close a2\n6001 10 /close\n\
        7000 10/11 heap 30000000 4M\n20000 10 exit 0\n20001 end\n";
    let r = report(lines);
    check(&r);
    let p = only(&r);
    let (first, second) = (boundary(p, BoundaryKind::SessionClosed, 0), boundary(p, BoundaryKind::SessionClosed, 1));
    assert!(first.survivors.is_empty(), "{:?}", first.survivors);
    let bytes: Vec<u64> = second.survivors.iter().map(|s| s.bytes).collect();
    assert_eq!(bytes, [16 * MIB, 8 * MIB]);
    assert_eq!(verdict(&second.verdicts, Cause::SessionNotDeleted).unwrap().bytes, 16 * MIB);
    assert_eq!(verdict(&second.verdicts, Cause::Unexplained).unwrap().bytes, 8 * MIB);
    let exit = boundary(p, BoundaryKind::ProcessExit, 0);
    assert_eq!(verdict(&exit.verdicts, Cause::Unexplained).unwrap().bytes, 12 * MIB);
}

#[test]
fn the_process_can_end_before_the_grace_time_is_over() {
    let lines = four_sessions() + "10000 10 close a1\n10001 10 /close\n10501 10 exit 0\n10502 end\n";
    let r = report(&lines);
    check(&r);
    let p = only(&r);
    let closed = boundary(p, BoundaryKind::SessionClosed, 0);
    assert_eq!(closed.grace_ms, 500);
    assert_eq!(closed.survivors.len(), 1);
    assert_eq!(closed.after_at, p.exited_at.clone().unwrap());
}

#[test]
fn memory_that_comes_back_within_the_grace_time_did_not_survive() {
    let base = four_sessions() + "10000 10 delete a1\n10001 10 /delete\n";
    let in_time = report(&(base.clone() + "11900 10 unheap 10000000\n20000 end\n"));
    assert!(boundary(only(&in_time), BoundaryKind::SessionDeleted, 0).survivors.is_empty());
    let late = report(&(base + "12100 10 unheap 10000000\n20000 end\n"));
    let b = boundary(only(&late), BoundaryKind::SessionDeleted, 0);
    assert_eq!(verdict(&b.verdicts, Cause::Unexplained).unwrap().bytes, 64 * MIB);
    // It was freed later: the whole trace blames nobody for it.
    assert!(verdict(&only(&late).verdicts, Cause::Unexplained).is_none());
}

#[test]
fn sessions_open_while_the_process_runs_on_are_listed_at_the_end_of_the_trace() {
    let r = report(&(four_sessions() + "41000 end\n"));
    check(&r);
    let p = only(&r);
    assert_eq!(p.exited_at, None);
    assert_eq!(boundary(p, BoundaryKind::TraceEnd, 0).survivors.len(), 4);
    assert_eq!(verdict(&p.verdicts, Cause::SessionOpen).unwrap().bytes, 256 * MIB);
}

#[test]
fn small_groups_are_summed_up_exactly() {
    let mut lines = four_sessions();
    for i in 0..10 {
        lines += &format!("20000 10/11 heap 7{i}000000 100K op{i}\n");
    }
    let r = report_with(&(lines + "30000 10 exit 0\n30001 end\n"), Options { min_bytes: MIB, ..Options::default() });
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    let folded = b.survivors.last().unwrap();
    assert_eq!((folded.folded_groups, folded.bytes, folded.count), (Some(10), 10 * 100 * 1024, 10));
    assert_eq!(folded.cause, Cause::Unexplained);
    assert_eq!(b.survivors.iter().map(|s| s.bytes).sum::<u64>(), 256 * MIB + 10 * 100 * 1024);
    // Never folded into another cause, however small.
    assert_eq!(verdict(&b.verdicts, Cause::Unexplained).unwrap().bytes, 10 * 100 * 1024);
}

#[test]
fn clearing_caches_speaks_of_what_was_made_since_the_last_time() {
    let lines = "0 start\n1 10 process p.py\n2 10 tensorflow 2.21.0\n10 10 context c1\n\
        100 10/11 heap 10000000 8M\n200 10 clear c1\n201 10 /clear\n\
        5000 10/11 heap 20000000 4M\n6000 10 clear c1\n6001 10 /clear\n9000 10/11 heap 30000000 2M\n\
        10000 10 drop c1\n10001 10 /drop\n20000 end\n";
    let r = report(lines);
    check(&r);
    let p = only(&r);
    let sums = |kind, n| boundary(p, kind, n).survivors.iter().map(|s| s.bytes / MIB).sum::<u64>();
    assert_eq!(sums(BoundaryKind::CachesCleared, 0), 8);
    assert_eq!(sums(BoundaryKind::CachesCleared, 1), 4);
    assert_eq!(sums(BoundaryKind::ContextDeleted, 0), 14);
}
