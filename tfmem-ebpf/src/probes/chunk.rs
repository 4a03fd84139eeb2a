//! BFC pools: `tsl::BFCAllocator::AddTraceMe(this, string_view name, const void* chunk, i64 requested, i64 allocated)`
//! is called once for each chunk taken and once for each given back, under the pool's lock.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use tfmem_common::wire::{Chunk, Origin, kind};

use crate::{
    emit::{Wake, header, send},
    gate::{current, now},
    origin,
};

/// `strlen("MemoryAllocation")` and `strlen("MemoryDeallocation")`: the name's length says which one it is.
const TAKEN: u64 = 16;
const GIVEN_BACK: u64 = 18;

#[uprobe]
pub fn chunk(ctx: ProbeContext) -> u32 {
    try_chunk(&ctx);
    0
}

#[inline(always)]
fn try_chunk(ctx: &ProbeContext) -> Option<()> {
    let current = current()?;
    let taken = match ctx.arg::<u64>(1)? {
        TAKEN => 1,
        GIVEN_BACK => 0,
        _ => return None,
    };
    let at = now();
    let origin = if taken == 1 { origin::read(&current, at) } else { Origin::default() };
    let record = Chunk {
        header: header(kind::CHUNK, at, &current),
        pool: ctx.arg(0)?,
        chunk: ctx.arg(3)?,
        requested: ctx.arg(4)?,
        allocated: ctx.arg(5)?,
        origin,
        taken,
        _pad: 0,
    };
    send(kind::CHUNK, record, Wake::Later);
    Some(())
}
