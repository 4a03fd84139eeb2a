//! TensorFlow's aligned allocator: `tsl::port::AlignedMalloc(bytes, alignment)`, `AlignedFree(address)`,
//! `AlignedSizedFree(address, bytes, alignment)`.

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tfmem_common::{
    counters,
    lost::what,
    wire::{HeapAlloc, HeapFree, kind},
};

use crate::{
    emit::{count, header, lost, send_frequent},
    gate::now,
    origin,
    thread::{self, Malloc},
    unwind,
};

#[uprobe]
pub fn aligned_malloc(ctx: ProbeContext) -> u32 {
    try_aligned_malloc(&ctx);
    0
}

#[inline(always)]
fn try_aligned_malloc(ctx: &ProbeContext) -> Option<()> {
    let (current, thread) = thread::current()?;
    unwind::entered(&current, ctx);
    // SAFETY: the context's registers are valid while the program runs.
    let stack = unsafe { (*ctx.regs).rsp };
    let Some(thread) = thread else {
        count(counters::INFLIGHT_FULL);
        lost(&current, what::HEAP_TAKEN, None);
        return None;
    };
    if thread.malloc.depth > 0 {
        if stack < thread.malloc.stack {
            thread.malloc.depth += 1;
            return Some(());
        }
        count(counters::STALE_ENTRY);
    }
    let trace = unwind::at_entry(&current, ctx);
    thread.malloc = Malloc { bytes: ctx.arg(0)?, stack, depth: 1, trace };
    Some(())
}

#[uretprobe]
pub fn aligned_malloc_ret(ctx: RetProbeContext) -> u32 {
    try_aligned_malloc_ret(&ctx);
    0
}

#[inline(always)]
fn try_aligned_malloc_ret(ctx: &RetProbeContext) -> Option<()> {
    let (current, thread) = thread::current()?;
    unwind::returned(&current, ctx);
    let Some(thread) = thread.filter(|thread| thread.malloc.depth > 0) else {
        count(counters::RETURN_WITHOUT_ENTRY);
        return None;
    };
    thread.malloc.depth -= 1;
    if thread.malloc.depth > 0 {
        return Some(());
    }
    let (bytes, trace) = (thread.malloc.bytes, thread.malloc.trace);
    let address: u64 = ctx.ret();
    if address == 0 {
        return None;
    }
    let at = now();
    let record = HeapAlloc {
        header: header(kind::HEAP_ALLOC, at, &current),
        address,
        bytes,
        origin: origin::read(&current, Some(thread), at),
        stack: trace,
    };
    if !send_frequent(kind::HEAP_ALLOC, record) {
        lost(&current, what::HEAP_TAKEN, Some(bytes));
    }
    Some(())
}

#[uprobe]
pub fn aligned_free(ctx: ProbeContext) -> u32 {
    try_aligned_free(&ctx);
    0
}

#[inline(always)]
fn try_aligned_free(ctx: &ProbeContext) -> Option<()> {
    let (current, _) = thread::current()?;
    let address: u64 = ctx.arg(0)?;
    if address == 0 {
        return None;
    }
    let record = HeapFree { header: header(kind::HEAP_FREE, now(), &current), address };
    if !send_frequent(kind::HEAP_FREE, record) {
        lost(&current, what::HEAP_GIVEN_BACK, None);
    }
    Some(())
}
