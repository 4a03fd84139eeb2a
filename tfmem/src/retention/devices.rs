//! GPUs at a moment: what is taken of each, by whom.

use std::fmt::Write as _;

use crate::event::{Addr, DeviceIndex, GpuKind};
use crate::ledger::Process;
use crate::ledger::gpu::{GpuBlock, PoolId, StreamPool};
use crate::ledger::types::{BlockLayer, Pool};
use crate::report::model::{self, Device, DeviceBands, Layer};

/// Whether the driver's probes are in the process.
pub(super) fn watched(process: &Process) -> bool {
    process.gpu.seen || process.identity.libraries.iter().any(|l| l.framework == crate::catalogue::gpu::FRAMEWORK)
}

pub(super) fn devices(process: &Process) -> Vec<Device> {
    process.gpu.devices().into_iter().map(|index| device(process, index)).collect()
}

fn device(process: &Process, index: Option<DeviceIndex>) -> Device {
    let all = process.gpu.bytes_on(index, GpuKind::is_on_device);
    let streams = process.gpu.bytes_on(index, |kind| kind == GpuKind::Stream);
    let own = |pool: &&Pool| of(process, pool).is_some_and(|m| m.layer == Layer::Device && m.device == index);
    let pools = process.pools.values().filter(own);
    let (regions, chunks) = pools.fold((0_u64, 0_u64), |(regions, chunks), pool| {
        (regions.saturating_add(super::pools::region_bytes(pool)), chunks.saturating_add(pool.in_use))
    });
    let names = index.and_then(|index| process.gpu.names(index));
    Device {
        index,
        uuid: names.and_then(|names| names.uuid).map(|uuid| uuid_text(&uuid)),
        bus_id: names.and_then(|names| names.bus.clone()),
        nvml_bytes: None,
        explained_bytes: all,
        unexplained_bytes: None,
        bands: DeviceBands {
            pool_in_use: Some(chunks.saturating_add(streams)),
            pool_free: Some(regions.saturating_sub(chunks)),
            outside_pool: Some(all.saturating_sub(streams).saturating_sub(regions)),
            context: None,
            unexplained: None,
        },
        stream_pools: process
            .gpu
            .stream_pools()
            .filter(|(_, pool)| pool.device == index)
            .map(|(id, pool)| stream_pool(id, pool))
            .collect(),
    }
}

fn stream_pool(id: PoolId, pool: &StreamPool) -> model::StreamPool {
    model::StreamPool {
        handle: match id {
            PoolId::At(handle) => Some(handle),
            PoolId::OfDevice(_) => None,
        },
        in_use_bytes: pool.in_use,
        allocations: pool.allocations,
        kept_at_most_bytes: pool.kept_at_most(),
        release_threshold_bytes: pool.threshold,
        reserved_bytes: pool.reserved.map(|(_, bytes)| bytes),
    }
}

/// `GPU-01020304-…`, as NVIDIA's tools write it.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What a pool of TensorFlow's is made of, where that is memory of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    pub layer: Layer,
    pub device: Option<DeviceIndex>,
}

/// `None`: host memory, or it has none yet.
pub(super) fn of(process: &Process, pool: &Pool) -> Option<Made> {
    let block = pool.regions.iter().find_map(|region| process.gpu.region(region.start))?;
    Some(Made { layer: layer(block.layer()?), device: block.device })
}

#[must_use]
pub const fn layer(layer: BlockLayer) -> Layer {
    match layer {
        BlockLayer::Chunk => Layer::PoolChunk,
        BlockLayer::Heap => Layer::Heap,
        BlockLayer::Device => Layer::Device,
        BlockLayer::Pinned => Layer::Pinned,
        BlockLayer::Managed => Layer::Managed,
    }
}

/// TensorFlow's pool has a word for each of its smallest chunks (`kMinAllocationSize`, and `AllocationRegion::handles_`,
/// in tsl/framework/bfc_allocator.h).
const SMALLEST_CHUNK: u64 = 256;
const HANDLE: u64 = 8;
/// What the C allocator adds to a block that has a mapping of its own, rounded up to pages.
const AROUND: u64 = 2 * 4096;
/// The table is made right after the region.
const SOON_NS: u64 = 10_000_000_000;

/// Host memory that a pool's tables of handles take: mappings of just that size, made by the thread that had taken the
/// region, right after it.
pub(super) fn handle_tables(process: &Process, pool: &Pool) -> u64 {
    let blocks = pool.regions.iter().filter_map(|region| process.gpu.region(region.start));
    let tables = blocks.filter_map(|block| table_of(process, block));
    tables.fold(0, u64::saturating_add)
}

fn table_of(process: &Process, block: &GpuBlock) -> Option<u64> {
    let wanted = block.bytes / SMALLEST_CHUNK * HANDLE;
    let fits = |len: u64| (wanted..=wanted.saturating_add(AROUND)).contains(&len);
    let soon = |born: u64| born >= block.born && born - block.born <= SOON_NS;
    // Smaller ones come from inside the heap.
    let all = process.memory_map().iter();
    all.filter(|range| range.tid == block.tid && range.born.is_some_and(soon) && fits(range.len))
        .map(|range| range.len)
        .next()
}

/// Regions without a chunk in use, and their bytes: the pool could give them back whole.
pub(super) fn idle_regions(process: &Process, addr: Addr, pool: &Pool) -> (u64, u64) {
    let mut used: Vec<Addr> = process.chunks().filter(|c| c.pool == Some(addr)).map(|c| c.addr).collect();
    used.sort_unstable();
    let idle = |start: Addr, bytes: u64| {
        let first = used.partition_point(|&chunk| chunk < start);
        used.get(first).is_none_or(|&chunk| chunk >= start.saturating_add(bytes))
    };
    pool.regions
        .iter()
        .filter(|region| idle(region.start, region.bytes))
        .fold((0, 0), |(n, bytes), region| (n + 1, bytes.saturating_add(region.bytes)))
}
