//! Streams of events: anything at all, and what a busy program looks like.

use std::sync::Arc;

use proptest::prelude::*;

use crate::event::{
    Body, Call, Event, ExitStatus, Gpu, GpuKind, GpuSpace, GpuTaken, Job, LibraryInfo, Mapping, MappingKind, Missed,
    MissedTotal, Origin, ProcessInfo, Snapshot,
};

/// Few threads, and times that mostly go up; every kind of body with any values.
pub fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (word(), 0u32..4, prop_oneof![0u32..4, any::<u32>()], body());
    proptest::collection::vec(event.prop_map(|(at, pid, tid, body)| Event { at, pid, tid, stack: None, body }), 0..120)
}

/// Small ones, page multiples, repeated ones and any at all.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..20, (0u64..20).prop_map(|n| 0x7fff_0000_0000 + n * 4096), any::<u64>(), Just(u64::MAX)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", "\\PC{0,12}"]
}

fn origin() -> impl Strategy<Value = Origin> {
    (word(), prop_oneof![0i64..12, any::<i64>()], prop_oneof![Just(*b"output\0\0"), any::<[u8; 8]>()], any::<i32>())
        .prop_map(|(op, step, region, dtype)| Origin { op, step, region, dtype })
}

fn call() -> impl Strategy<Value = Call> {
    proptest::sample::select(&Call::ALL[..])
}

fn body() -> impl Strategy<Value = Body> {
    // Boxed: the trees of values are large, and the stack of a test is small.
    prop_oneof![memory().boxed(), maps().boxed(), calls().boxed(), processes().boxed(), snapshot().boxed()].boxed()
}

fn memory() -> impl Strategy<Value = Body> {
    prop_oneof![
        (word(), word(), word(), word(), origin()).prop_map(|(pool, addr, requested, bytes, origin)| {
            Body::ChunkAlloc { pool, addr, requested, bytes, origin }
        }),
        (word(), word()).prop_map(|(pool, addr)| Body::ChunkFree { pool, addr }),
        (word(), word(), origin()).prop_map(|(addr, bytes, origin)| Body::HeapAlloc { addr, bytes, origin }),
        word().prop_map(|addr| Body::HeapFree { addr }),
    ]
}

fn maps() -> impl Strategy<Value = Body> {
    prop_oneof![
        (word(), word(), any::<u32>(), any::<u32>(), any::<bool>())
            .prop_map(|(start, len, prot, flags, file)| Body::Map { start, len, prot, flags, file }),
        (word(), word()).prop_map(|(start, len)| Body::Unmap { start, len }),
        (word(), word(), word(), word(), any::<bool>(), any::<u32>()).prop_map(
            |(old_start, old_len, start, len, keep_old, took)| {
                Body::Remap { old_start, old_len, start, len, keep_old, took }
            }
        ),
        word().prop_map(|end| Body::Brk { end }),
        (word(), word(), any::<i32>()).prop_map(|(start, len, advice)| Body::Advise { start, len, advice }),
    ]
}

fn calls() -> impl Strategy<Value = Body> {
    let words = (word(), word(), word(), word(), word(), word());
    prop_oneof![
        (call(), words, proptest::option::of(text())).prop_map(|(call, (a, b, c, d, e, f), text)| Body::Enter {
            call,
            args: [a, b, c, d, e, f],
            text: text.map(Arc::from)
        }),
        (call(), word()).prop_map(|(call, ret)| Body::Leave { call, ret }),
        (word(), text()).prop_map(|(op, name)| Body::OpName { op, name: name.into() }),
        users(),
    ]
}

/// Boxed: the union of all strategies would else be too much for a test's stack.
fn users() -> BoxedStrategy<Body> {
    prop_oneof![
        text().prop_map(|label| Body::Mark { label: label.into() }),
        (any::<u16>(), text(), any::<bool>()).prop_map(|(number, name, entry_only)| Body::UserSymbol {
            number,
            name: name.into(),
            entry_only
        }),
        any::<u16>().prop_map(|number| Body::UserEnter { number }),
        any::<u16>().prop_map(|number| Body::UserLeave { number }),
        (word(), word(), word(), proptest::option::of(any::<u32>())).prop_map(|(addr, bytes, context, device)| {
            let (kind, pool, caller) = (GpuKind::Linear, bytes ^ 1, context ^ 1);
            Body::Gpu(Gpu::Taken(GpuTaken { kind, addr, bytes, device, context, pool, caller }))
        }),
        word().prop_map(|addr| Body::Gpu(Gpu::GivenBack { space: GpuSpace::Memory, addr })),
    ]
    .boxed()
}

fn processes() -> BoxedStrategy<Body> {
    let status = prop_oneof![any::<i32>().prop_map(ExitStatus::Code), any::<i32>().prop_map(ExitStatus::Signal)];
    prop_oneof![
        (any::<u32>(), any::<bool>()).prop_map(|(child, shares_memory)| Body::Fork { child, shares_memory }),
        Just(Body::Exec),
        Just(Body::ThreadExit),
        Just(Body::Polled),
        Just(Body::TraceStart),
        Just(Body::TraceEnd),
        proptest::option::of(status).prop_map(|status| Body::Ended { status }),
        (text(), word()).prop_map(|(what, count)| Body::Lost { what: what.into(), count }),
        (word(), word(), word()).prop_map(|(records, bytes, unsized_records)| Body::Missed {
            what: Missed::HeapGivenBack,
            total: MissedTotal { records, bytes, unsized_records }
        }),
        (any::<u32>(), text(), proptest::collection::vec(text(), 0..4), word(), proptest::option::of(text())).prop_map(
            |(ppid, comm, cmdline, started_at, cgroup)| {
                let exe = comm.clone();
                let job = cgroup.clone().map(|name| Job { name, task: started_at });
                Body::Process(Arc::new(ProcessInfo {
                    ppid,
                    comm,
                    cmdline,
                    exe,
                    started_at,
                    cgroup,
                    attached: ppid & 1 == 1,
                    job,
                }))
            }
        ),
        (text(), proptest::option::of(text()), any::<u32>(), proptest::collection::vec(text(), 0..4)).prop_map(
            |(path, version, probes, missing)| {
                let (framework, build_id) = (path.clone(), version.clone());
                Body::Library(Arc::new(LibraryInfo {
                    framework,
                    version,
                    path,
                    build_id,
                    probes,
                    blind: missing.iter().take(1).cloned().collect(),
                    missing,
                }))
            }
        ),
    ]
    .boxed()
}

fn snapshot() -> impl Strategy<Value = Body> {
    let kind = proptest::sample::select(
        &[
            MappingKind::Anonymous,
            MappingKind::Heap,
            MappingKind::Stack,
            MappingKind::File,
            MappingKind::Shared,
            MappingKind::Kernel,
        ][..],
    );
    let mapping = (word(), word(), kind, word(), text()).prop_map(|(start, len, kind, resident_bytes, name)| Mapping {
        start,
        len,
        kind,
        resident_bytes,
        name,
    });
    let ranges = proptest::collection::vec((word(), word()), 0..8);
    ((word(), word(), word()), proptest::collection::vec(mapping, 0..8), proptest::option::of(ranges), any::<bool>())
        .prop_map(|((rss_anon, rss_file, rss_shmem), mappings, resident, at_exit)| {
            Body::Snapshot(Arc::new(Snapshot { rss_anon, rss_file, rss_shmem, mappings, resident, at_exit }))
        })
}

/// Numbers without an order (xorshift).
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub const fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// A training loop on eight threads of an executor: each step runs 150 ops, whose tensors live for a while. One step
/// in ten has sizes of its own (batches of text), now and then the heap and the kernel are asked, and every half
/// second somebody looks at the totals. Times between events have the spread of real ones.
pub fn training(count: usize) -> Vec<Event> {
    const OPS: u64 = 150;
    let mut dice = Dice::new(42);
    let mut out = Vec::with_capacity(count + 100);
    let mut alive: Vec<(u64, u64)> = Vec::new();
    let mut free: Vec<Vec<u64>> = vec![Vec::new(); OPS as usize];
    let (mut at, mut step, mut fresh, mut looked) = (5_000_000_000_000, 0, 0x7f12_0000_0000, 0);
    while out.len() < count {
        step += 1;
        let (odd, main) = (dice.roll(10) == 0, 4711);
        let call = |out: &mut Vec<Event>, at, body| out.push(Event { at, pid: main, tid: main, stack: None, body });
        let args = [0x5581_2345_0000, 0, 0x7ffd_1234_5678 + dice.roll(4) * 64, 3, 0, 0];
        call(&mut out, at, Body::Enter { call: Call::SessionRun, args, text: None });
        for op in 0..OPS {
            // Most gaps are a few microseconds, some are long: work between the ops.
            at += 300 + dice.roll(6_000) + if dice.roll(8) == 0 { dice.roll(200_000) } else { 0 };
            let tid = main + 1 + (op / 20 + dice.roll(2)) as u32 % 8;
            let origin = Origin { op: op.wrapping_mul(0x9e37_79b9_7f4a_7c15), step, region: *b"output\0\0", dtype: 1 };
            let requested = 1024 * (op + 1) + if odd { 4 * dice.roll(100_000) } else { 0 };
            let addr = free[op as usize].pop().unwrap_or_else(|| {
                fresh += 256 * (1 + dice.roll(4000));
                fresh
            });
            let bytes = requested.next_multiple_of(256);
            let body = match dice.roll(50) {
                0 => Body::HeapAlloc { addr, bytes: requested, origin },
                _ => Body::ChunkAlloc { pool: 0x5581_0000_1000, addr, requested, bytes, origin },
            };
            out.push(Event { at, pid: main, tid, stack: None, body });
            alive.push((op, addr));
            while alive.len() as u64 > 40 + dice.roll(20) {
                at += 200 + dice.roll(3_000);
                let (op, addr) = alive.swap_remove(dice.roll(20) as usize);
                free[op as usize].push(addr);
                out.push(Event {
                    at,
                    pid: main,
                    tid,
                    stack: None,
                    body: Body::ChunkFree { pool: 0x5581_0000_1000, addr },
                });
            }
            if dice.roll(2000) == 0 {
                let (start, len) = (0x7f80_0000_0000 + dice.roll(1000) * 0x20_0000, 4096 * (1 + dice.roll(512)));
                out.push(Event {
                    at,
                    pid: main,
                    tid,
                    stack: None,
                    body: Body::Map { start, len, prot: 3, flags: 0x22, file: false },
                });
                out.push(Event { at: at + 900, pid: main, tid, stack: None, body: Body::Unmap { start, len } });
                at += 1000;
            }
        }
        call(&mut out, at + 100, Body::Leave { call: Call::SessionRun, ret: 0 });
        if at - looked > 500_000_000 {
            looked = at;
            let seen =
                Snapshot { rss_anon: 4096 * (500_000 + dice.roll(1000)), rss_file: 200 << 20, ..Snapshot::default() };
            call(&mut out, at, Body::Snapshot(Arc::new(seen)));
        }
    }
    out.truncate(count);
    out
}
