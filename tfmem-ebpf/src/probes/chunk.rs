//! Chunks of BFC pools, taken and given back, each reported once. Which functions report them in a library, the loader
//! reads from its code (`attach::plan::chunks`); all run in the thread that takes or gives back.
//!
//! * `chunk`: `tsl::BFCAllocator::AddTraceMe(this, string_view name, const void* chunk, i64 requested, i64 allocated)`,
//!   under the pool's lock. In most versions it reports both directions.
//! * `chunk_short`: `AddTraceMe(this, name, chunk)`, under the pool's lock, where it does not call the form above.
//! * `chunk_given_back`: `DeallocateRawInternal(this, chunk)`, before it takes the lock: whoever gets the chunk next
//!   does so later. It is called once for each `DeallocateRaw`, also with no chunk at all.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_user, generated::bpf_get_attach_cookie},
    macros::uprobe,
    programs::ProbeContext,
};
use tfmem_common::{
    cookie::PoolLayout,
    counters,
    lost::what,
    wire::{Chunk, kind},
};

use crate::{
    emit::{count, header, lost, send_frequent, zero},
    gate::{Current, now},
    origin,
    thread::{self, Thread},
    unwind,
};

/// `strlen("MemoryAllocation")` and `strlen("MemoryDeallocation")`: the name's length says which one it is.
const TAKEN: u64 = 16;
const GIVEN_BACK: u64 = 18;

/// `sizeof(BFCAllocator::AllocationRegion)`: pointer, size, end, handles (a vector), …
const REGION_SIZE: u64 = 48;
const REGION_END: u64 = 16;
/// `sizeof(std::vector)`.
const VECTOR_SIZE: u32 = 24;
/// `sizeof(BFCAllocator::Chunk)`: size, requested size, allocation number, pointer, …
const CHUNK_SIZE: u64 = 64;
/// `BFCAllocator::kMinAllocationBits`: a region has one handle for each 256 bytes.
const HANDLE_BITS: u64 = 8;
/// 2^16 regions are more than a pool can have (each is 1 MiB at least).
const SEARCH_STEPS: u32 = 16;

#[uprobe]
pub fn chunk(ctx: ProbeContext) -> u32 {
    try_chunk(&ctx);
    0
}

#[inline(always)]
fn try_chunk(ctx: &ProbeContext) -> Option<()> {
    let (current, thread) = thread::current()?;
    let taken = match ctx.arg::<u64>(1)? {
        TAKEN => true,
        GIVEN_BACK => false,
        _ => return None,
    };
    report(ctx, (&current, thread), (ctx.arg(0)?, ctx.arg(3)?), taken, (ctx.arg(4)?, ctx.arg(5)?));
    Some(())
}

#[uprobe]
pub fn chunk_short(ctx: ProbeContext) -> u32 {
    try_chunk_short(&ctx);
    0
}

#[inline(always)]
fn try_chunk_short(ctx: &ProbeContext) -> Option<()> {
    let (current, thread) = thread::current()?;
    let (pool, chunk): (u64, u64) = (ctx.arg(0)?, ctx.arg(3)?);
    match ctx.arg::<u64>(1)? {
        TAKEN => {
            // SAFETY: the context is the one the kernel passed.
            let layout = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
            let found = thread.and_then(|thread| (find_sizes(thread, pool, chunk, layout) != 0).then_some(thread));
            let Some(thread) = found else {
                // A chunk of unknown size would make every total wrong: it is a loss, and counted as one.
                count(counters::CHUNK_UNREADABLE);
                lost(&current, what::CHUNK_TAKEN, None);
                return None;
            };
            let sizes = (thread.sizes[0], thread.sizes[1]);
            report(ctx, (&current, Some(thread)), (pool, chunk), true, sizes);
        }
        GIVEN_BACK => report(ctx, (&current, thread), (pool, chunk), false, (0, 0)),
        _ => {}
    }
    Some(())
}

#[uprobe]
pub fn chunk_given_back(ctx: ProbeContext) -> u32 {
    try_chunk_given_back(&ctx);
    0
}

#[inline(always)]
fn try_chunk_given_back(ctx: &ProbeContext) -> Option<()> {
    let (current, thread) = thread::current()?;
    let chunk: u64 = ctx.arg(1)?;
    if chunk != 0 {
        report(ctx, (&current, thread), (ctx.arg(0)?, chunk), false, (0, 0));
    }
    Some(())
}

#[inline(always)]
fn report(
    ctx: &ProbeContext,
    (current, thread): (&Current, Option<&mut Thread>),
    (pool, chunk): (u64, u64),
    taken: bool,
    (requested, allocated): (u64, u64),
) {
    // Before the time is taken: whoever reads the event knows its stack.
    let stack = if taken { unwind::at_entry(current, ctx) } else { 0 };
    let at = now();
    let zero = zero();
    let record = Chunk {
        header: header(kind::CHUNK, at, current),
        pool,
        chunk,
        requested,
        allocated,
        origin: if taken { origin::read(current, thread, at) } else { origin::none() },
        taken: u32::from(taken),
        _pad: zero as u32,
        stack: stack | zero,
    };
    if !send_frequent(kind::CHUNK, record) {
        lost(current, if taken { what::CHUNK_TAKEN } else { what::CHUNK_GIVEN_BACK }, Some(allocated));
    }
}

/// Notes a chunk's sizes with the thread; 0: they cannot be read. A function of its own, for its part of the stack: that of
/// the probe and of the unwinder's functions together may be 512 bytes.
#[inline(never)]
fn find_sizes(thread: &mut Thread, pool: u64, address: u64, layout: u64) -> u64 {
    match sizes(thread, pool, address, PoolLayout::unpack(layout)) {
        Some((requested, allocated)) => {
            thread.sizes = [requested, allocated];
            1
        }
        None => 0,
    }
}

/// The sizes that the pool has noted for a chunk, requested and allocated, found as `AddTraceMe` itself finds them.
/// The pool's lock is held, so nothing moves. Layouts: tsl/framework/bfc_allocator.h, the same in 2.12.0, 2.15.1,
/// 2.18.1 and 2.21.0 but for the two offsets. `None`: not what is expected there.
#[inline(always)]
fn sizes(thread: &mut Thread, pool: u64, address: u64, layout: PoolLayout) -> Option<(u64, u64)> {
    let (regions, chunks) = lists(pool, layout)?;
    let [start, _, _, handles] = region_of(thread, pool, regions, address)?;
    let handle: u64 = read(handles + ((address - start) >> HANDLE_BITS) * 8)?;
    let [allocated, requested, _, pointer]: [u64; 4] = read(chunks + handle * CHUNK_SIZE)?;
    (pointer == address).then_some((requested, allocated))
}

/// Where the list of a pool's regions begins and ends, and where that of its chunks begins.
#[inline(always)]
fn lists(pool: u64, layout: PoolLayout) -> Option<([u64; 2], u64)> {
    // A vector is begin, end and end of its room. In one go where one follows the other: a read costs more than its bytes.
    if layout.chunks.wrapping_sub(layout.regions) == VECTOR_SIZE {
        let [first, last, _, chunks]: [u64; 4] = read(pool + u64::from(layout.regions))?;
        return Some(([first, last], chunks));
    }
    Some((read(pool + u64::from(layout.regions))?, read(pool + u64::from(layout.chunks))?))
}

/// The region that an address lies in: regions do not overlap, so any in the list that has it is the one. The last one's
/// place is tried first.
#[inline(always)]
fn region_of(thread: &mut Thread, pool: u64, regions: [u64; 2], address: u64) -> Option<[u64; 4]> {
    let has = |[start, _, end, _]: [u64; 4]| start <= address && address < end;
    if thread.pool == pool {
        let place = regions[0] + u64::from(thread.region) * REGION_SIZE;
        if place < regions[1] {
            let region: [u64; 4] = read(place)?;
            if has(region) {
                return Some(region);
            }
        }
    }
    let place = search(regions, address)?;
    let region: [u64; 4] = read(place)?;
    thread.pool = pool;
    thread.region = ((place - regions[0]) / REGION_SIZE) as u32;
    has(region).then_some(region)
}

/// The place of the first region that ends behind `address` (`RegionManager::RegionFor`): regions are sorted by their end.
#[inline(always)]
fn search([first, last]: [u64; 2], address: u64) -> Option<u64> {
    let mut low = 0;
    let mut high = last.checked_sub(first)? / REGION_SIZE;
    for _ in 0..SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = (low + high) / 2;
        let end: u64 = read(first + middle * REGION_SIZE + REGION_END)?;
        if end > address {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(first + low * REGION_SIZE)
}

#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address; a bad one is an error, not a fault. Only integers are read.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}
