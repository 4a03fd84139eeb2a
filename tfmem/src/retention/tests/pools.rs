//! Pools: reserve and reuse, and chunks inside regions.

use super::{boundary, check, only, verdict};
use crate::report::fail_above;
use crate::report::model::{BoundaryKind, Cause, Layer};
use crate::retention::testing::{MIB, report};

/// A run that takes 256 MiB from the pool and gives them back.
fn run(at: u64, session: &str, extend: bool) -> String {
    let mut lines = format!("{at} 10 new {session}\n{} 10 run {session}\n", at + 1);
    for i in 0..8_u64 {
        let addr = 0x1000_0000 + i * (32 << 20);
        if extend && i % 4 == 0 {
            lines += &format!("{} 10 extend f00 {addr:x} 128M\n", at + 2);
        }
        lines += &format!("{} 10 chunk f00 {addr:x} 32M Fill_{i}\n", at + 3);
    }
    for i in 0..8_u64 {
        lines += &format!("{} 10 unchunk f00 {:x}\n", at + 50, 0x1000_0000 + i * (32 << 20));
    }
    lines += &format!("{} 10 /run\n{} 10 close {session}\n{} 10 /close\n", at + 60, at + 61, at + 62);
    lines + &format!("{} 10 delete {session}\n{} 10 /delete\n", at + 63, at + 64)
}

pub(super) const HEAD: &str = "0 start\n1 10 process train.py\n2 10 tensorflow 2.21.0\n3 10 pool f00 mklcpu\n";

#[test]
fn a_pool_that_is_used_again_is_no_leak() {
    let lines = HEAD.to_owned() + &run(100, "a1", true) + &run(5000, "a2", false) + "20000 10 exit 0\n20001 end\n";
    let r = report(&lines);
    check(&r);
    let p = only(&r);
    assert_eq!(p.verdicts.len(), 1, "{:?}", p.verdicts);
    let v = &p.verdicts[0];
    assert_eq!((v.cause, v.bytes), (Cause::PoolReserve, 256 * MIB));
    assert_eq!(
        v.summary,
        "256.0 MiB is free inside TensorFlow's pool \"mklcpu\" (2 regions, largest free chunk 128.0 MiB)."
    );
    assert!(
        v.evidence
            .iter()
            .any(|e| e.contains("the second run used it again (256.0 MiB handed out) and did not grow it")),
        "{:?}",
        v.evidence
    );
    assert_eq!(v.refs.pools, ["mklcpu"]);
    let pool = &boundary(p, BoundaryKind::ProcessExit, 0).pools[0];
    assert_eq!((pool.regions, pool.regions_bytes, pool.in_use_bytes), (2, 256 * MIB, 0));
    assert_eq!((pool.reused_bytes, pool.grown_bytes), (256 * MIB, 0));
    assert!(!fail_above(&r, 0), "a reserve fails no build");
}

#[test]
fn a_pool_that_grew_says_so() {
    let second = run(5000, "a2", false) + "6000 10 extend f00 90000000 64M\n";
    let lines = HEAD.to_owned() + &run(100, "a1", true) + &second + "20000 10 exit 0\n20001 end\n";
    let r = report(&lines);
    check(&r);
    let v = verdict(&only(&r).verdicts, Cause::PoolReserve).unwrap();
    assert_eq!(v.bytes, 320 * MIB);
    assert!(v.evidence[0].ends_with("and grew it by 64.0 MiB."), "{:?}", v.evidence);
}

#[test]
fn without_a_later_run_reuse_is_not_claimed() {
    let r = report(&(HEAD.to_owned() + &run(100, "a1", true) + "20000 10 exit 0\n20001 end\n"));
    let v = verdict(&only(&r).verdicts, Cause::PoolReserve).unwrap();
    assert!(v.evidence[0].contains("reuse is not proved"), "{:?}", v.evidence);
}

#[test]
fn a_chunk_is_counted_and_its_region_is_not() {
    let lines = HEAD.to_owned()
        + "10 10 new a1\n11 10 run a1\n12 10 extend f00 10000000 128M\n13 10 chunk f00 10000000 32M w/Assign\n\
           14 10 /run\n20000 10 exit 0\n20001 end\n";
    let r = report(&lines);
    check(&r);
    let p = only(&r);
    let b = boundary(p, BoundaryKind::ProcessExit, 0);
    assert_eq!(b.survivors.len(), 1);
    let s = &b.survivors[0];
    assert_eq!((s.layer, s.bytes, s.pool.as_deref()), (Layer::PoolChunk, 32 * MIB, Some("mklcpu")));
    assert_eq!(s.place.variable.as_deref(), Some("w"));
    assert_eq!(b.after.layers.pool_region, Some(128 * MIB));
    assert_eq!(b.after.layers.pool_chunk, Some(32 * MIB));
    assert_eq!(b.after.layers.heap, Some(0));
    assert_eq!(verdict(&p.verdicts, Cause::SessionOpen).unwrap().bytes, 32 * MIB);
    assert_eq!(verdict(&p.verdicts, Cause::PoolReserve).unwrap().bytes, 96 * MIB);
}

#[test]
fn a_pool_from_before_the_trace_is_no_reserve() {
    // Its constructor was not seen: chunks handed out before may fill it.
    let lines = "1000 start\n1001 10 process train.py attached started=10\n1002 10 tensorflow 2.21.0\n\
        1100 10 extend f00 10000000 128M\n1200 10 chunk f00 10000000 32M a\n9000 end\n";
    let r = report(lines);
    check(&r);
    let p = only(&r);
    assert!(verdict(&p.verdicts, Cause::PoolReserve).is_none());
    assert_eq!(verdict(&p.verdicts, Cause::BeforeAttach).unwrap().bytes, 96 * MIB);
    assert_eq!(verdict(&p.verdicts, Cause::Unexplained).unwrap().bytes, 32 * MIB);
}
