//! What observations add: resident bytes, bands, and the times they were taken at.

use super::{boundary, check, only};
use crate::report::model::{BoundaryKind, Cause, Layer};
use crate::retention::testing::{MIB, report};

const HEAD: &str = "0 start\n1 10 process p.py\n2 10 tensorflow 2.21.0\n\
    5 10 map 10000000 256M\n6 10 map 30000000 64M\n\
    10 10 pool f00 cpu\n11 10 extend f00 10000000 128M\n\
    20 10 new a1\n21 10 run a1\n22 10 chunk f00 10000000 32M w/Assign\n23 10 heap 30000000 16M v/Assign\n24 10 /run\n";

#[test]
fn bands_are_disjoint_and_residency_is_of_the_survivors() {
    // Resident: 24 MiB of the chunk, 8 MiB of free pool behind it, 4 MiB of the heap block, 1 MiB of other heap.
    let look = "5000 10 look 50M 20M exit in=10000000+24M,12000000+8M,30000000+4M,31800000+1M \
                map=10000000+256M,30000000+64M,70000000+16M:[heap]\n";
    let r = report(&(HEAD.to_owned() + look + "5001 10 exit 0\n5002 end\n"));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    let bands = &b.after.bands;
    assert_eq!(bands.pool_in_use, Some(24 * MIB));
    assert_eq!(bands.pool_free, Some(8 * MIB));
    assert_eq!(bands.heap_in_use, Some(4 * MIB));
    assert_eq!(bands.heap_free, None);
    assert_eq!(bands.files, Some(20 * MIB));
    assert_eq!(bands.unexplained, Some(0));
    assert_eq!(bands.mappings_other, Some(14 * MIB));
    assert_eq!(b.after.rss_bytes, Some(70 * MIB));
    let resident: Vec<_> = b.survivors.iter().map(|s| (s.bytes / MIB, s.resident_bytes.map(|n| n / MIB))).collect();
    assert_eq!(resident, [(32, Some(24)), (16, Some(4))]);
    assert_eq!(b.pools[0].resident_bytes, Some(32 * MIB));
    assert_eq!(b.pools[0].free_resident_bytes, Some(8 * MIB));
    assert_eq!(b.after.observed_at.as_deref(), Some("2023-11-14T22:13:25.000000Z"));
}

#[test]
fn what_no_event_told_of_is_unexplained() {
    let first = "1000 10 look 40M 20M in=10000000+24M map=10000000+256M,30000000+64M\n";
    // A mapping that came without an event, 6 MiB of it resident; a named one is explained by its name.
    let second = "5000 10 look 60M 20M exit in=10000000+24M,50000000+6M,60000000+5M \
                  map=10000000+256M,30000000+64M,50000000+8M,60000000+8M:[anon:x]\n";
    let r = report(&(HEAD.to_owned() + first + second + "5001 10 exit 0\n5002 end\n"));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    assert_eq!(b.after.bands.unexplained, Some(6 * MIB));
    assert_eq!((r.coverage.bytes_seen, r.coverage.bytes_explained), (80 * MIB, 74 * MIB));
    assert_eq!(r.losses["mapping_drift_bytes"], 16 * MIB);
}

#[test]
fn totals_alone_leave_the_bands_unknown() {
    let r = report(&(HEAD.to_owned() + "5000 10 look 50M 20M exit\n5001 10 exit 0\n5002 end\n"));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    assert_eq!(b.after.bands.pool_in_use, None);
    assert_eq!(b.after.bands.unexplained, None);
    assert_eq!(b.after.bands.mappings_other, Some(50 * MIB));
    assert!(b.survivors.iter().all(|s| s.resident_bytes.is_none()));
}

#[test]
fn the_kernels_lagging_counters_do_not_break_the_sum() {
    let look = "5000 10 look 20M 1M exit in=10000000+24M,12000000+8M,30000000+4M map=10000000+256M,30000000+64M\n";
    let r = report(&(HEAD.to_owned() + look + "5001 10 exit 0\n5002 end\n"));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    assert_eq!((b.after.bands.pool_in_use, b.after.bands.pool_free), (Some(20 * MIB), Some(0)));
}

fn closes(looks: &str) -> String {
    let mut lines: Vec<(u64, String)> =
        (HEAD.to_owned() + "5000 10 close a1\n5100 10 unheap 30000000\n5200 10 /close\n20000 end\n" + looks)
            .lines()
            .map(|l| (l.split_whitespace().next().unwrap().parse().unwrap(), l.to_owned()))
            .collect();
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(_, l)| l + "\n").collect()
}

#[test]
fn before_is_read_while_the_close_is_under_way_or_just_before_it() {
    let rss = |looks: &str| {
        let r = report(&closes(looks));
        check(&r);
        boundary(only(&r), BoundaryKind::SessionClosed, 0).before.rss_bytes.map(|n| n / MIB)
    };
    assert_eq!(rss("5050 10 look 70M 0M\n5060 10 look 60M 0M\n"), Some(70));
    assert_eq!(rss("4500 10 look 80M 0M\n5050 10 look 70M 0M\n"), Some(70));
    assert_eq!(rss("4500 10 look 80M 0M\n5230 10 look 50M 0M\n"), Some(80));
    assert_eq!(rss("5150 10 look 50M 0M\n"), None, "something was given back already");
    assert_eq!(rss("4500 10 look 80M 0M\n5150 10 look 50M 0M\n"), Some(80));
    assert_eq!(rss("5230 10 look 50M 0M\n"), None, "after the close");
    assert_eq!(rss("3500 10 look 80M 0M\n5300 10 look 50M 0M\n"), None);
    assert_eq!(rss(""), None);
}

#[test]
fn after_is_the_first_look_when_the_survivors_are_known() {
    let r = report(&closes(
        "5050 10 look 70M 0M\n6000 10 look 60M 0M\n7250 10 look 40M 1M in=10000000+8M\n9000 10 look 30M 0M\n",
    ));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::SessionClosed, 0);
    assert_eq!(b.after.rss_bytes, Some(41 * MIB));
    assert_eq!(b.after_at, "2023-11-14T22:13:27.200000Z");
    assert_eq!(b.after.observed_at.as_deref(), Some("2023-11-14T22:13:27.250000Z"));
    assert_eq!(b.survivors[0].resident_bytes, Some(8 * MIB));
    // The end of the trace was not near to any look.
    assert_eq!(boundary(only(&r), BoundaryKind::TraceEnd, 0).after.rss_bytes, None);
    assert_eq!(only(&r).now.rss_bytes, Some(30 * MIB));
}

#[test]
fn without_a_later_look_the_last_one_after_the_boundary_counts() {
    let r = report(&closes("6000 10 look 60M 0M\n"));
    let b = boundary(only(&r), BoundaryKind::SessionClosed, 0);
    assert_eq!(b.after.rss_bytes, Some(60 * MIB));
    let r = report(&closes("5150 10 look 60M 0M\n"));
    let b = boundary(only(&r), BoundaryKind::SessionClosed, 0);
    assert_eq!(b.after.rss_bytes, None);
}

#[test]
fn the_timeline_has_an_edge_for_each_look_and_boundary() {
    let r = report(&closes("5050 10 look 70M 5M\n9000 10 look 30M 0M\n"));
    let t = &only(&r).timeline;
    let ms: Vec<u64> = t.edges.iter().map(|e| e / 1_000_000).collect();
    assert_eq!(ms, [1, 5050, 5200, 9000, 20_000]);
    assert_eq!(t.rss[1], Some(75 * MIB));
    assert_eq!(t.in_use[1..3], [48 * MIB, 32 * MIB]);
}

#[test]
fn the_look_at_the_very_end_may_come_in_after_the_end() {
    let late = "5001 10 exit 0\n5002 10 look 50M 20M exit in=10000000+24M\n9000 end\n";
    let r = report(&(HEAD.to_owned() + late));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    assert_eq!(b.after.rss_bytes, Some(70 * MIB));
    assert_eq!(b.survivors[0].resident_bytes, Some(24 * MIB));
}

#[test]
fn what_the_c_allocator_keeps_is_a_reserve() {
    let walked = |walk: &str| {
        let look = "5000 10 look 50M 20M exit in=10000000+24M map=10000000+256M,30000000+64M\n";
        let r = report(&(HEAD.to_owned() + walk + look + "5001 10 exit 0\n5002 end\n"));
        check(&r);
        let b = boundary(only(&r), BoundaryKind::ProcessExit, 0).clone();
        let reserve = b.verdicts.iter().find(|v| v.cause == Cause::HeapReserve).map(|v| v.bytes / MIB);
        (b.after.bands.heap_free.map(|n| n / MIB), reserve)
    };
    assert_eq!(walked("5000 10 walk 70M 20M 16M 12M\n"), (Some(16), Some(16)));
    // Its pages were given back: free for malloc, nobody's memory.
    assert_eq!(walked("5000 10 walk 70M 20M 0 0\n"), (Some(0), None));
    // Long before the end.
    assert_eq!(walked("3000 10 walk 70M 20M 16M 12M\n"), (None, None));
    assert_eq!(walked(""), (None, None));
}

#[test]
fn who_holds_a_survivor_decides_its_cause() {
    let found = |holds: &str| {
        let heap = "100 10 heap 40000000 24M Fill\n";
        let r = report(&(HEAD.to_owned() + heap + holds + "5001 10 exit 0\n5002 end\n"));
        check(&r);
        let b = boundary(only(&r), BoundaryKind::ProcessExit, 0).clone();
        let of_heap = b.survivors.iter().find(|s| s.layer == Layer::Heap && s.bytes == 24 * MIB).map(|s| s.cause);
        let told: Vec<_> = b.verdicts.iter().filter(|v| Some(v.cause) == of_heap).map(|v| v.bytes / MIB).collect();
        (of_heap, told)
    };
    assert_eq!(found("5000 10 holds cache - 24M 40000000\n"), (Some(Cause::PipelineBuffers), vec![24]));
    assert_eq!(found("5000 10 holds python - 24M 40000000\n"), (Some(Cause::PythonReference), vec![24]));
    // Another block's holder, and nobody's.
    assert_eq!(found("5000 10 holds cache - 24M 50000000\n").0, Some(Cause::Unexplained));
    assert_eq!(found("").0, Some(Cause::Unexplained));
}

#[test]
fn what_hangs_on_a_table_is_told_beside_the_ledger() {
    let r = report(&(HEAD.to_owned() + "5000 10 holds table table_27 40M\n5001 10 exit 0\n5002 end\n"));
    check(&r);
    let b = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    let verdict = b.verdicts.iter().find(|v| v.cause == Cause::StatefulResource).unwrap();
    assert_eq!(verdict.bytes, 40 * MIB);
    let evidence = verdict.evidence.join("; ");
    assert!(evidence.contains("table \"table_27\" in container \"localhost\""), "{evidence}");
}

#[test]
fn what_was_there_before_the_trace_has_its_holder() {
    let verdicts = |before: &str| {
        let head = "0 start\n1 10 process p.py attached started=0\n2 10 tensorflow 2.21.0\n";
        let look = "look 200M 20M in=40000000+64M,50000000+32M map=40000000+64M,50000000+32M\n";
        let end = "5000 10 holds cache - 64M 40000000\n";
        let r = report(&format!("{head}{before}3 10 {look}{end}5000 10 {look}5001 end\n"));
        check(&r);
        let last = boundary(only(&r), BoundaryKind::TraceEnd, 0);
        assert!(last.holders_at.is_some());
        last.verdicts.iter().map(|v| (v.cause, v.bytes / MIB)).collect::<Vec<_>>()
    };
    for before in ["3 10 holds cache - 64M 40000000\n", ""] {
        assert_eq!(verdicts(before), [(Cause::PipelineBuffers, 64)], "{before}");
    }
}

#[test]
fn a_block_that_was_made_after_the_search_is_another_one() {
    let cause = |made: u64| {
        let heap = format!("1000 10 holds cache - 24M 40000000\n{made} 10 heap 40000000 24M Fill\n");
        let heap = if made < 1000 { heap.lines().rev().map(|line| format!("{line}\n")).collect() } else { heap };
        let r = report(&(HEAD.to_owned() + &heap + "5001 10 exit 0\n5002 end\n"));
        let b = boundary(only(&r), BoundaryKind::ProcessExit, 0).clone();
        b.survivors.iter().find(|s| s.layer == Layer::Heap && s.bytes == 24 * MIB).map(|s| s.cause)
    };
    assert_eq!(cause(900), Some(Cause::PipelineBuffers));
    assert_eq!(cause(1100), Some(Cause::Unexplained));
}

#[test]
fn without_allocations_holders_tell_at_each_boundary() {
    let r = report(
        "0 start\n1 10 process p.py attached started=0\n2 10 tensorflow 2.21.0 unfollowed\n10 10 new a1\n\
         1000 10 close a1\n1001 10 /close\n2900 10 holds cache - 64M 40000000\n\
         3002 10 look 200M 20M in=40000000+64M map=40000000+64M\n5001 end\n",
    );
    check(&r);
    let closed = boundary(only(&r), BoundaryKind::SessionClosed, 0);
    assert_eq!(
        closed.verdicts.iter().map(|v| (v.cause, v.bytes / MIB)).collect::<Vec<_>>(),
        [(Cause::PipelineBuffers, 64)]
    );
    // What nobody follows is not known to be nothing.
    assert_eq!((closed.after.layers.pool_chunk, closed.after.bands.heap_in_use), (None, None));
    assert_eq!(closed.after.rss_bytes, Some(220 * MIB));
    let last = boundary(only(&r), BoundaryKind::TraceEnd, 0);
    assert!(last.verdicts.iter().all(|v| v.cause != Cause::BeforeAttach), "{:?}", last.verdicts);
}
