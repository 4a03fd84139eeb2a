//! Pools on a GPU: what is kept after a close, and what would have made it less.

use super::{boundary, only, verdict};
use crate::event::{Body, Event, Gpu, GpuKind, GpuTaken};
use crate::report::fail_above;
use crate::report::model::{BoundaryKind, Cause, Layer, Report};
use crate::retention::testing::{MIB, events, facts};
use crate::retention::{Analysis, Options};

/// The script with calls of the driver in between: time in ms, thread, call.
fn report(lines: &str, calls: &[(u64, Gpu)]) -> Report {
    let mut all = events(lines);
    all.extend(calls.iter().map(|(ms, call)| Event::of(ms * 1_000_000, 10, 10, Body::Gpu(call.clone()))));
    all.sort_by_key(|event| event.at);
    let mut analysis = Analysis::new(Options::default());
    for event in &all {
        analysis.feed(event);
    }
    analysis.finish(facts())
}

fn taken(kind: GpuKind, addr: u64, bytes: u64) -> Gpu {
    Gpu::Taken(GpuTaken { kind, addr, bytes, device: Some(1), context: 0, pool: 0, caller: 0 })
}

/// A pool that takes a region in each of these milliseconds; a session in it, closed at 200.
fn lines(extended: &[u64]) -> String {
    let mut lines = "0 start\n1 10 process train.py\n2 10 tensorflow 2.18.1\n3 10 pool f00 GPU_1_bfc\n".to_owned();
    lines += "10 10 new a1\n11 10 run a1\n";
    for ms in extended {
        lines += &format!("{ms} 10 grow f00\n{} 10 /grow\n", ms + 2);
    }
    lines
        + "100 10 chunk f00 1000000 1M w\n150 10 unchunk f00 1000000\n160 10 /run\n200 10 close a1\n201 10 /close\n\
             20000 10 exit 0\n20001 end\n"
}

#[test]
fn ten_gigabytes_after_the_close() {
    const GIB: u64 = 1 << 30;
    // The script's pools have a limit of 1 TiB.
    let r = report(&lines(&[20]), &[(21, taken(GpuKind::Linear, 0x100_0000, 1000 * GIB))]);
    let close = boundary(only(&r), BoundaryKind::SessionClosed, 0);
    let v = verdict(&close.verdicts, Cause::PoolReserve).unwrap();
    assert_eq!(v.bytes, 1000 * GIB);
    assert_eq!(
        v.summary,
        "1,000.0 GiB of GPU 1 is free inside TensorFlow's pool \"GPU_1_bfc\" and stays taken until the process ends; \
         nothing in it is in use."
    );
    assert!(v.gives_back.contains("set_memory_growth"), "{}", v.gives_back);
    assert!(v.evidence.iter().any(|e| e.ends_with("memory growth is off")), "{:?}", v.evidence);
    assert!(!fail_above(&r, 0), "a reserve fails no build");
    let pool = &close.pools[0];
    assert_eq!((pool.device, pool.memory, pool.idle_regions_bytes), (Some(1), Some(Layer::Device), Some(1000 * GIB)));
    let device = &close.after.devices[0];
    assert_eq!((device.index, device.bands.pool_free, device.bands.outside_pool), (Some(1), Some(1000 * GIB), Some(0)));
    assert_eq!(close.after.layers.device, Some(1000 * GIB));
}

#[test]
fn a_pool_that_grows_needs_no_growth() {
    let calls = [(21, taken(GpuKind::Linear, 0x100_0000, 2 * MIB)), (31, taken(GpuKind::Linear, 0x900_0000, 8 * MIB))];
    let r = report(&lines(&[20, 30]), &calls);
    let v = verdict(&boundary(only(&r), BoundaryKind::ProcessExit, 0).verdicts, Cause::PoolReserve).unwrap();
    assert_eq!(v.bytes, 10 * MIB);
    assert!(!v.gives_back.contains("growth"), "{}", v.gives_back);
    assert!(v.evidence.iter().any(|e| e.starts_with("it grew in 2 steps")), "{:?}", v.evidence);
}

#[test]
fn page_locked_memory_has_its_own_cause_and_what_lies_outside_survives() {
    let calls = [(21, taken(GpuKind::Host, 0x100_0000, 4 * MIB)), (50, taken(GpuKind::Linear, 0x900_0000, 3 * MIB))];
    let r = report(&lines(&[20]), &calls);
    let end = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    assert_eq!(verdict(&end.verdicts, Cause::PinnedReserve).map(|v| v.bytes), Some(4 * MIB));
    assert!(verdict(&end.verdicts, Cause::PoolReserve).is_none());
    let survivors: Vec<_> = end.survivors.iter().map(|s| (s.layer, s.bytes, s.device)).collect();
    assert_eq!(survivors, [(Layer::Device, 3 * MIB, Some(1))]);
    assert_eq!(end.after.devices[0].bands.outside_pool, Some(3 * MIB));
}

#[test]
fn what_a_pool_of_the_drivers_keeps_is_an_upper_bound() {
    let give_back = Gpu::GivenBack { space: GpuKind::Stream.space(), addr: 0x900_0000 };
    let role = crate::event::PoolRole::Default;
    let calls = [
        (20, Gpu::Pool { pool: 0xd0, device: 1, role }),
        (21, Gpu::PoolThreshold { pool: 0xd0, bytes: 6 * MIB }),
        (30, taken(GpuKind::Stream, 0x900_0000, 8 * MIB)),
        (40, give_back),
    ];
    let r = report(&lines(&[]), &calls);
    let end = boundary(only(&r), BoundaryKind::ProcessExit, 0);
    let v = verdict(&end.verdicts, Cause::PoolReserve).unwrap();
    assert_eq!(v.bytes, 6 * MIB);
    assert!(v.summary.starts_with("up to 6.0 MiB of GPU 1"), "{}", v.summary);
    assert!(v.evidence[0].starts_with("an upper bound"), "{:?}", v.evidence);
}
