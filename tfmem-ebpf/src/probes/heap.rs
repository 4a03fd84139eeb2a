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
    gate::{current_in_full as current, now},
    maps::{MALLOCS, MallocInFlight},
    origin, unwind,
};

#[uprobe]
pub fn aligned_malloc(ctx: ProbeContext) -> u32 {
    try_aligned_malloc(&ctx);
    0
}

#[inline(always)]
fn try_aligned_malloc(ctx: &ProbeContext) -> Option<()> {
    let current = current()?;
    unwind::entered(&current, ctx);
    // SAFETY: the context's registers are valid while the program runs.
    let stack = unsafe { (*ctx.regs).rsp };
    if let Some(outer) = MALLOCS.get_ptr_mut(current.id) {
        // SAFETY: the entry belongs to this thread, which is here.
        let outer = unsafe { &mut *outer };
        if stack < outer.stack {
            outer.depth += 1;
            return Some(());
        }
        count(counters::STALE_ENTRY);
    }
    let trace = unwind::at_entry(&current, ctx);
    let entry = MallocInFlight { bytes: ctx.arg(0)?, stack, depth: 0, trace };
    if MALLOCS.insert(current.id, entry, 0).is_err() {
        count(counters::INFLIGHT_FULL);
        lost(&current, what::HEAP_TAKEN, None);
    }
    Some(())
}

#[uretprobe]
pub fn aligned_malloc_ret(ctx: RetProbeContext) -> u32 {
    try_aligned_malloc_ret(&ctx);
    0
}

#[inline(always)]
fn try_aligned_malloc_ret(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    unwind::returned(&current, ctx);
    let Some(entry) = MALLOCS.get_ptr_mut(current.id) else {
        count(counters::RETURN_WITHOUT_ENTRY);
        return None;
    };
    // SAFETY: the entry belongs to this thread, which is here.
    let entry = unsafe { &mut *entry };
    if entry.depth > 0 {
        entry.depth -= 1;
        return Some(());
    }
    let (bytes, trace) = (entry.bytes, entry.trace);
    let _ = MALLOCS.remove(current.id);
    let address: u64 = ctx.ret();
    if address == 0 {
        return None;
    }
    let at = now();
    let record = HeapAlloc {
        header: header(kind::HEAP_ALLOC, at, &current),
        address,
        bytes,
        origin: origin::read(&current, at),
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
    let current = current()?;
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
