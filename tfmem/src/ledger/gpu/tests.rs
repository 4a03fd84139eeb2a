use std::collections::BTreeMap;

use crate::event::{Body, Call, Event, Gpu, GpuKind, GpuSpace, GpuTaken, PoolRole};
use crate::ledger::Ledger;
use crate::ledger::Process;

struct Stream {
    ledger: Ledger,
    at: u64,
}

impl Stream {
    fn new() -> Self {
        Self { ledger: Ledger::new(), at: 0 }
    }

    fn body(&mut self, tid: u32, body: Body) {
        self.at += 10;
        self.ledger.apply(&Event::of(self.at, 1, tid, body), &mut Vec::new());
    }

    fn call(&mut self, call: Gpu) {
        self.body(1, Body::Gpu(call));
    }

    fn take(&mut self, kind: GpuKind, addr: u64, bytes: u64, context: u64, pool: u64) {
        let taken = GpuTaken { kind, addr, bytes, device: None, context, pool, caller: 0 };
        self.call(Gpu::Taken(taken));
    }

    fn create(&mut self, handle: u64, bytes: u64, device: u32) {
        let (kind, device) = (GpuKind::Physical, Some(device));
        self.call(Gpu::Taken(GpuTaken { kind, addr: handle, bytes, device, context: 0, pool: 0, caller: 0 }));
    }

    fn process(&self) -> &Process {
        self.ledger.process(1).expect("there is one")
    }

    /// Bytes of GPUs, page-locked, managed.
    fn totals(&self) -> (u64, u64, u64) {
        self.process().gpu.totals()
    }
}

const FREE: fn(u64) -> Gpu = |addr| Gpu::GivenBack { space: GpuSpace::Memory, addr };

#[test]
fn memory_is_on_the_device_of_its_context() {
    let mut s = Stream::new();
    s.call(Gpu::Context { context: 0xc0, device: 0, primary: true });
    s.call(Gpu::Context { context: 0xc1, device: 1, primary: false });
    s.take(GpuKind::Linear, 0x1000, 100, 0xc0, 0);
    s.take(GpuKind::Linear, 0x2000, 30, 0xc1, 0);
    s.take(GpuKind::Linear, 0x3000, 5, 0xc9, 0);
    s.take(GpuKind::Host, 0x1000, 7, 0xc1, 0);
    assert_eq!(s.totals(), (135, 7, 0));
    let gpu = &s.process().gpu;
    let on = |device| gpu.bytes_on(device, GpuKind::is_on_device);
    assert_eq!((on(Some(0)), on(Some(1)), on(None)), (100, 30, 5));
    assert_eq!(gpu.devices(), [Some(0), Some(1), None]);
    s.call(Gpu::ContextGone { context: 0xc1 });
    assert_eq!(s.totals(), (105, 0, 0));
}

#[test]
fn only_the_last_release_ends_what_belongs_to_a_primary_context() {
    let mut s = Stream::new();
    for _ in 0..2 {
        s.call(Gpu::Context { context: 0xc0, device: 0, primary: true });
    }
    s.take(GpuKind::Linear, 0x1000, 100, 0xc0, 0);
    s.take(GpuKind::Stream, 0x2000, 8, 0xc0, 0);
    s.create(0x3000, 4, 0);
    s.call(Gpu::PrimaryReleased { device: 0 });
    assert_eq!(s.totals().0, 112);
    s.call(Gpu::PrimaryReleased { device: 0 });
    // Pools and physical memory are the device's.
    assert_eq!(s.totals().0, 12);
    s.call(Gpu::PrimaryReleased { device: 0 });
    s.call(Gpu::Context { context: 0xc0, device: 0, primary: true });
    s.take(GpuKind::Linear, 0x1000, 100, 0xc0, 0);
    s.call(Gpu::PrimaryReset { device: 0 });
    assert_eq!(s.totals().0, 12);
    assert_eq!(s.process().anomalies.unpaired_frees, 0);
}

#[test]
fn physical_memory_stays_while_it_is_mapped() {
    let mut s = Stream::new();
    s.create(7, 64, 1);
    s.take(GpuKind::Addresses, 0x10_0000, 4096, 0, 0);
    assert_eq!(s.totals().0, 64, "addresses are no memory");
    s.call(Gpu::Mapped { addr: 0x10_0000, bytes: 64, handle: 7 });
    s.call(Gpu::Retained { handle: 7 });
    s.call(Gpu::GivenBack { space: GpuSpace::Handle, addr: 7 });
    s.call(Gpu::GivenBack { space: GpuSpace::Handle, addr: 7 });
    assert_eq!(s.totals().0, 64);
    s.call(Gpu::Unmapped { addr: 0x10_0000, bytes: 4096 });
    assert_eq!(s.totals().0, 0);
    s.call(Gpu::GivenBack { space: GpuSpace::Handle, addr: 7 });
    assert_eq!(s.process().anomalies.unpaired_frees, 1);
}

#[test]
fn what_is_freed_in_order_of_a_stream_may_stay_in_its_pool() {
    let mut s = Stream::new();
    s.call(Gpu::Context { context: 0xc0, device: 0, primary: true });
    s.call(Gpu::Pool { pool: 0xd0, device: 0, role: PoolRole::Default });
    s.call(Gpu::PoolThreshold { pool: 0xd0, bytes: 80 });
    s.take(GpuKind::Stream, 0x1000, 60, 0xc0, 0);
    s.take(GpuKind::Stream, 0x2000, 40, 0xc0, 0xd0);
    let pool = |s: &Stream| *s.process().gpu.stream_pools().next().expect("one").1;
    assert_eq!((pool(&s).in_use, pool(&s).kept_at_most()), (100, 0));
    s.call(FREE(0x1000));
    assert_eq!((pool(&s).in_use, pool(&s).kept_at_most()), (40, 40));
    s.call(Gpu::PoolTrimmed { pool: 0xd0, keep: 50 });
    assert_eq!((pool(&s).in_use, pool(&s).kept_at_most()), (40, 10));
    assert_eq!(s.process().gpu.stream_pools().count(), 1, "the device's own pool by both its names");
    // A pool lives until nothing of it is in use.
    s.call(Gpu::Pool { pool: 0xd1, device: 1, role: PoolRole::Made });
    s.take(GpuKind::Stream, 0x3000, 5, 0xc0, 0xd1);
    assert_eq!(s.process().gpu.bytes_on(Some(1), GpuKind::is_on_device), 5, "on the pool's device, not the context's");
    s.call(Gpu::PoolGone { pool: 0xd1 });
    assert_eq!(s.process().gpu.stream_pools().count(), 2);
    s.call(FREE(0x3000));
    assert_eq!(s.process().gpu.stream_pools().count(), 1);
}

#[test]
fn a_region_of_a_pool_is_the_drivers_memory() {
    let mut s = Stream::new();
    let enter = |call, args| Body::Enter { call, args, text: None };
    s.body(1, enter(Call::PoolNew, [0xb0, 0, 1 << 30, 0, 0, 0]));
    s.body(2, enter(Call::PoolExtend, [0xb0, 0, 0, 0, 0, 0]));
    // Another thread's is no region.
    s.take(GpuKind::Linear, 0x9000, 1, 0, 0);
    let taken =
        GpuTaken { kind: GpuKind::Linear, addr: 0x1000, bytes: 64, device: None, context: 0, pool: 0, caller: 0 };
    s.body(2, Body::Gpu(Gpu::Taken(taken)));
    s.body(2, Body::Leave { call: Call::PoolExtend, ret: 1 });
    let totals = s.process().totals();
    assert_eq!((totals.device_bytes, totals.region_bytes, totals.regions, totals.heap_bytes), (65, 64, 1, 0));
    assert_eq!(s.process().gpu.outside_pools(), 1);
    assert_eq!(s.process().pools[&0xb0].regions.len(), 1);
    s.call(FREE(0x1000));
    let totals = s.process().totals();
    assert_eq!((totals.device_bytes, totals.region_bytes, totals.regions), (1, 0, 0));
    assert!(s.process().pools[&0xb0].regions.is_empty());
    // What an extension that failed took is no region.
    s.body(2, enter(Call::PoolExtend, [0xb0, 0, 0, 0, 0, 0]));
    s.body(2, Body::Gpu(Gpu::Taken(taken)));
    s.body(2, Body::Leave { call: Call::PoolExtend, ret: 0 });
    let totals = s.process().totals();
    assert_eq!((totals.device_bytes, totals.region_bytes, totals.regions), (65, 0, 0));
}

#[test]
fn a_free_that_is_told_late_ends_nobody_else() {
    let mut s = Stream::new();
    s.take(GpuKind::Linear, 0x1000, 1, 0, 0);
    let freed = s.at + 1;
    s.take(GpuKind::Linear, 0x1000, 2, 0, 0);
    s.ledger.apply(&Event::of(freed, 1, 2, Body::Gpu(FREE(0x1000))), &mut Vec::new());
    assert_eq!(s.totals().0, 2);
}

/// Some numbers, the same each time (an LCG with Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Long random streams of all that a program does rightly: the sums are those of a list.
#[test]
fn sums_are_those_of_a_list() {
    const KINDS: [GpuKind; 5] = [GpuKind::Linear, GpuKind::Array, GpuKind::Managed, GpuKind::Host, GpuKind::Stream];
    for seed in 0..20 {
        let mut n = Numbers(seed);
        let mut s = Stream::new();
        let mut list: BTreeMap<(GpuSpace, u64), (GpuKind, u64, u64)> = BTreeMap::new();
        for device in 0..2 {
            s.call(Gpu::Context { context: 0xc0 + u64::from(device), device, primary: true });
        }
        for _ in 0..5_000 {
            let (kind, addr, context) = (KINDS[n.below(5) as usize], 1 + n.below(40), 0xc0 + n.below(2));
            let key = (kind.space(), addr);
            if n.below(100) == 0 {
                s.call(Gpu::PrimaryReset { device: (context - 0xc0) as u32 });
                list.retain(|_, (kind, _, of)| *of != context || !kind.is_of_context());
            } else if list.remove(&key).is_some() {
                s.call(Gpu::GivenBack { space: key.0, addr });
            } else {
                let bytes = n.below(1 << 20);
                s.take(kind, addr, bytes, context, 0);
                list.insert(key, (kind, bytes, context));
            }
            let sum = |of: &[GpuKind]| list.values().filter(|(k, ..)| of.contains(k)).map(|(_, b, _)| b).sum::<u64>();
            let device = sum(&[GpuKind::Linear, GpuKind::Array, GpuKind::Stream]);
            assert_eq!(s.totals(), (device, sum(&[GpuKind::Host]), sum(&[GpuKind::Managed])), "seed {seed}");
            let pools: u64 = s.process().gpu.stream_pools().map(|(_, pool)| pool.in_use).sum();
            assert_eq!(pools, sum(&[GpuKind::Stream]));
        }
        let alive: Vec<_> =
            s.process().gpu.blocks().map(|b| ((b.kind.space(), b.addr), (b.kind, b.bytes, b.context))).collect();
        assert_eq!(alive, list.into_iter().collect::<Vec<_>>());
        assert_eq!(s.process().anomalies, crate::ledger::types::Anomalies::default());
    }
}
