use super::*;
use crate::ledger::types::{Anomalies, BlockLayer, Region, Totals};

#[test]
fn chunks_come_and_go() {
    let mut t = Trace::new();
    t.push(Body::Enter { call: Call::PoolNew, args: [POOL, 0, 1 << 30, 0, 0, 0], text: Some("mklcpu".into()) });
    t.chunk(0x1000, 256);
    t.on(7).chunk(0x2000, 512);
    t.on(8).chunk_free(0x1000);

    let process = t.process();
    let pool = &process.pools[&POOL];
    assert_eq!(pool.name.as_deref(), Some("mklcpu"));
    assert_eq!((pool.limit, pool.opened, pool.seeded), (1 << 30, 1, false));
    assert_eq!((pool.chunks, pool.in_use, pool.peak_in_use), (1, 512, 768));
    assert_eq!((pool.handed_out, pool.handed_out_bytes), (2, 768));
    let chunk = process.allocation(BlockLayer::Chunk, 0x2000).unwrap();
    assert_eq!((chunk.bytes, chunk.requested, chunk.born, chunk.tid), (512, 511, 3, 7));
    assert_eq!(chunk.pool, Some(POOL));
    assert_eq!(process.totals(), Totals { chunk_bytes: 512, chunks: 1, ..Totals::default() });
    assert_eq!(process.anomalies, Anomalies::default());
}

#[test]
fn the_origin_is_kept() {
    let mut t = Trace::new();
    let origin = Origin { op: 77, step: -3, region: *b"output\0\0", dtype: 1 };
    t.push(Body::HeapAlloc { addr: 0x40, bytes: 64, origin });
    assert_eq!(t.process().allocation(BlockLayer::Heap, 0x40).unwrap().origin, origin);
    t.push(Body::OpName { op: 77, name: "MatMul_1".into() });
    assert_eq!(t.ledger.op_name(77).map(AsRef::as_ref), Some("MatMul_1"));
    assert!(t.ledger.op_name(78).is_none());
}

#[test]
fn an_address_handed_out_twice_lost_its_end() {
    let mut t = Trace::new();
    t.chunk(0x1000, 256);
    t.chunk_of(0xb01, 0x1000, 128);
    t.heap(0x1000, 32);
    t.heap(0x1000, 48);
    let process = t.process();
    assert_eq!(process.anomalies.reused_alive, 2);
    assert_eq!((process.pools[&POOL].in_use, process.pools[&0xb01].in_use), (0, 128));
    let totals = process.totals();
    assert_eq!((totals.chunks, totals.chunk_bytes, totals.heap_blocks, totals.heap_bytes), (1, 128, 1, 48));
}

#[test]
fn unknown_frees_are_counted_by_what_explains_them() {
    let mut t = Trace::new();
    // The pool was there before its constructor could be seen.
    t.chunk_free(0x1000);
    assert_eq!(t.process().anomalies, Anomalies { expected_frees: 1, ..Anomalies::default() });
    assert!(t.process().pools[&POOL].seeded);

    t.pid = 200;
    t.enter(Call::PoolNew, &[POOL]);
    t.chunk_free(0x1000);
    t.heap_free(0x2000);
    t.heap_free(0);
    assert_eq!(t.process().anomalies, Anomalies { unpaired_frees: 2, ..Anomalies::default() });

    t.pid = 300;
    t.info(ProcessInfo { attached: true, ..ProcessInfo::default() });
    t.heap_free(0x2000);
    assert_eq!(t.process().anomalies, Anomalies { expected_frees: 1, ..Anomalies::default() });
}

#[test]
fn a_free_seen_twice_on_one_thread_is_one() {
    let mut t = Trace::new();
    t.heap(0x1000, 64);
    t.heap_free(0x1000);
    t.heap_free(0x1000);
    assert_eq!(t.process().anomalies.unpaired_frees, 0);
    // A third one, one on another thread, and one after an allocation are not the same free.
    t.heap_free(0x1000);
    assert_eq!(t.process().anomalies.unpaired_frees, 1);
    t.heap(0x2000, 64);
    t.heap_free(0x2000);
    t.on(9).heap_free(0x2000);
    assert_eq!(t.process().anomalies.unpaired_frees, 2);
    t.on(10).heap(0x3000, 64);
    t.heap_free(0x3000);
    t.heap(0x4000, 64);
    t.heap_free(0x3000);
    assert_eq!(t.process().anomalies.unpaired_frees, 3);
}

#[test]
fn a_block_freed_twice_but_allocated_between_is_freed_twice() {
    let mut t = Trace::new();
    t.heap(0x1000, 64);
    t.heap_free(0x1000);
    t.on(7).heap(0x1000, 32);
    t.on(PID).heap_free(0x1000);
    assert_eq!(t.process().totals().heap_blocks, 0);
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn what_a_pool_allocates_while_it_extends_is_its_region() {
    let mut t = Trace::new();
    t.enter(Call::PoolNew, &[POOL]);
    t.enter(Call::PoolExtend, &[POOL]);
    t.on(7).heap(0x9000, 8);
    t.on(PID).heap(0x8000, 0x1000);
    t.leave(Call::PoolExtend, 1);
    t.enter(Call::PoolExtend, &[POOL]);
    t.heap(0x1000, 0x2000);
    t.leave(Call::PoolExtend, 0x7f00_0000_0001);
    t.heap(0xa000, 16);

    let process = t.process();
    assert_eq!(
        process.pools[&POOL].regions,
        [Region { start: 0x1000, bytes: 0x2000, born: 7 }, Region { start: 0x8000, bytes: 0x1000, born: 4 }]
    );
    assert_eq!(process.pools[&POOL].extended, 2);
    assert_eq!(process.allocation(BlockLayer::Heap, 0x1000).unwrap().pool, Some(POOL));
    assert_eq!(process.allocation(BlockLayer::Heap, 0x9000).unwrap().pool, None);
    let totals = process.totals();
    assert_eq!((totals.regions, totals.region_bytes, totals.heap_blocks, totals.heap_bytes), (2, 0x3000, 2, 24));

    t.heap_free(0x1000);
    assert_eq!(t.process().pools[&POOL].regions.len(), 1);
    assert_eq!(t.process().totals().region_bytes, 0x1000);
}

#[test]
fn an_extension_that_failed_leaves_a_plain_block() {
    let mut t = Trace::new();
    t.enter(Call::PoolExtend, &[POOL]);
    t.heap(0x1000, 64);
    // A bool: the upper bits of the register mean nothing.
    t.leave(Call::PoolExtend, 0x7f00);
    let process = t.process();
    assert!(process.pools[&POOL].regions.is_empty());
    assert_eq!(process.pools[&POOL].extended, 0);
    assert_eq!((process.totals().regions, process.totals().region_bytes), (0, 0));
    assert_eq!((process.totals().heap_blocks, process.totals().heap_bytes), (1, 64));
    assert_eq!(process.allocation(BlockLayer::Heap, 0x1000).unwrap().pool, None);
}

#[test]
fn the_lost_return_of_an_extension_makes_no_more_regions() {
    let mut t = Trace::new();
    t.enter(Call::PoolExtend, &[POOL]);
    t.heap(0x1000, 0x1000);
    t.chunk(0x1000, 64);
    t.heap(0x5000, 64);
    assert_eq!(t.process().totals().regions, 1);
    assert_eq!(t.process().anomalies.unpaired_calls, 1);
}

#[test]
fn a_pool_that_goes_takes_its_chunks_along() {
    let mut t = Trace::new();
    t.enter(Call::PoolNew, &[POOL]);
    t.enter(Call::PoolNew, &[POOL]);
    t.enter(Call::PoolExtend, &[POOL]);
    t.heap(0x1000, 0x1000);
    t.leave(Call::PoolExtend, 1);
    t.chunk(0x1000, 64);
    t.chunk(0x1040, 64);
    t.chunk_of(0xb01, 0x5000, 32);
    t.chunk_free(0x1040);
    t.enter(Call::PoolDestroy, &[POOL]);
    t.enter(Call::PoolDestroy, &[POOL]);

    let process = t.process();
    assert_eq!((process.pool_handles.opened, process.pool_handles.closed), (1, 1));
    assert_eq!(process.pools.keys().copied().collect::<Vec<_>>(), [0xb01]);
    assert_eq!(process.anomalies, Anomalies { orphaned_chunks: 1, ..Anomalies::default() });
    let totals = process.totals();
    assert_eq!((totals.chunks, totals.chunk_bytes), (1, 32));
    assert_eq!((totals.regions, totals.region_bytes, totals.heap_blocks, totals.heap_bytes), (0, 0, 1, 0x1000));
    t.heap_free(0x1000);
    assert_eq!(t.process().totals().heap_bytes, 0);
    assert_eq!(t.process().anomalies.unpaired_frees, 0);
}

#[test]
fn a_pool_at_the_address_of_another_is_a_new_one() {
    let mut t = Trace::new();
    t.enter(Call::PoolNew, &[POOL]);
    t.chunk(0x1000, 64);
    t.enter(Call::PoolNew, &[POOL]);
    let process = t.process();
    assert_eq!((process.anomalies.reused_alive, process.anomalies.orphaned_chunks), (1, 1));
    assert_eq!((process.pools[&POOL].handed_out, process.totals().chunks), (0, 0));
}

#[test]
fn a_region_that_goes_takes_its_chunks_along() {
    let mut t = Trace::new();
    t.enter(Call::PoolExtend, &[POOL]);
    t.heap(0x1000, 0x1000);
    t.leave(Call::PoolExtend, 1);
    t.chunk(0x1800, 64);
    t.chunk(0x2000, 32);
    t.heap_free(0x1000);
    assert_eq!(t.process().anomalies.orphaned_chunks, 1);
    assert_eq!((t.process().totals().chunk_bytes, t.process().pools[&POOL].in_use), (32, 32));
}

#[test]
fn the_largest_free_stretch_of_a_pool() {
    let mut t = Trace::new();
    for region in [0x10000, 0x20000] {
        t.enter(Call::PoolExtend, &[POOL]);
        t.heap(region, 0x1000);
        t.leave(Call::PoolExtend, 1);
    }
    assert_eq!(t.process().largest_free(POOL), 0x1000);
    t.chunk(0x10000, 0x100);
    t.chunk(0x10400, 0x800);
    t.chunk(0x20000, 0x1000);
    // Another pool's chunk in the same place says nothing of this one.
    t.chunk_of(0xb01, 0x10200, 0x100);
    assert_eq!(t.process().largest_free(POOL), 0x400);
    t.chunk(0x10c00, 0x400);
    assert_eq!(t.process().largest_free(POOL), 0x300);
    t.chunk_free(0x20000);
    assert_eq!(t.process().largest_free(POOL), 0x1000);
    assert_eq!(t.process().largest_free(0xdead), 0);
}

#[test]
fn sizes_no_machine_has_do_no_harm() {
    let mut t = Trace::new();
    for addr in [1, 2, u64::MAX] {
        t.push(Body::ChunkAlloc { pool: POOL, addr, requested: 0, bytes: u64::MAX, origin: Origin::default() });
        t.heap(addr, u64::MAX);
        t.map(addr, u64::MAX);
    }
    assert_eq!(t.process().largest_free(POOL), 0);
    for addr in [1, 2, u64::MAX] {
        t.chunk_free(addr);
        t.heap_free(addr);
    }
    t.unmap(0, u64::MAX);
    assert_eq!(t.process().totals(), Totals::default());
    assert_eq!(t.process().pools[&POOL].in_use, 0);
}
