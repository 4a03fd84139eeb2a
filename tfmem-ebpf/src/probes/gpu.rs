//! Calls of a GPU's driver: one program for all entries, one for all returns. The attach cookie says where a call's
//! arguments are; what they mean is the loader's business. Only calls that succeeded are told.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_probe_read_user, generated::bpf_get_attach_cookie},
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tfmem_common::{
    counters,
    gpu::{Cookie, Effect, WORDS},
    lost::what,
    wire::{Gpu, kind},
};

use super::calls::pick;
use crate::{
    emit::{Wake, count, header, lost, send, send_frequent},
    gate::{Current, current, now},
    maps::{GPU_BELOW, GPU_CALLS, GPU_CURRENT, GpuBelow, GpuCurrent, GpuInFlight},
    unwind,
};

#[uprobe]
pub fn gpu_enter(ctx: ProbeContext) -> u32 {
    try_gpu_enter(&ctx);
    0
}

#[inline(always)]
fn try_gpu_enter(ctx: &ProbeContext) -> Option<()> {
    let current = current()?;
    unwind::entered(&current, ctx);
    // SAFETY: the context's registers are valid while the program runs.
    let stack = unsafe { (*ctx.regs).rsp };
    if let Some(outer) = GPU_CALLS.get_ptr_mut(current.id) {
        // SAFETY: the entry belongs to this thread, which is here.
        let outer = unsafe { &mut *outer };
        if stack < outer.stack {
            outer.depth += 1;
            return Some(());
        }
        count(counters::STALE_ENTRY);
    }
    let args = [ctx.arg(0)?, ctx.arg(1)?, ctx.arg(2)?, ctx.arg(3)?, ctx.arg(4)?, ctx.arg(5)?];
    // SAFETY: the helper checks the address.
    let caller = unsafe { bpf_probe_read_user(stack as *const u64) }.unwrap_or(0);
    let trace = unwind::at_entry(&current, ctx);
    let entry = GpuInFlight { args, at: now(), stack, depth: 0, trace, caller, context: context(&current) };
    if GPU_CALLS.insert(current.id, entry, 0).is_err() {
        count(counters::INFLIGHT_FULL);
        lost(&current, what::GPU, None);
    }
    Some(())
}

#[uretprobe]
pub fn gpu_leave(ctx: RetProbeContext) -> u32 {
    try_gpu_leave(&ctx);
    0
}

#[inline(always)]
fn try_gpu_leave(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    unwind::returned(&current, ctx);
    let Some(entry) = GPU_CALLS.get_ptr_mut(current.id) else {
        count(counters::RETURN_WITHOUT_ENTRY);
        return None;
    };
    // SAFETY: the entry belongs to this thread, which is here.
    let entry = unsafe { &mut *entry };
    if entry.depth > 0 {
        entry.depth -= 1;
        return Some(());
    }
    let call = *entry;
    let _ = GPU_CALLS.remove(current.id);
    // CUresult is 32 bits wide: the upper half of the register means nothing. 0: success.
    let result: u64 = ctx.ret();
    if result as u32 != 0 {
        return None;
    }
    // SAFETY: the context is the one the kernel passed.
    let cookie = Cookie::unpack(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let mut record = Gpu {
        header: header(kind::GPU, if cookie.from_entry { call.at } else { now() }, &current),
        call: u32::from(cookie.call),
        unread: 0,
        args: call.args,
        results: [0; 2],
        structure: [0; WORDS],
        context: call.context,
        caller: call.caller,
        stack: call.trace,
    };
    read_results(&mut record, cookie);
    take_effect(&current, cookie.effect, &record);
    if cookie.quiet {
        return Some(());
    }
    if record.unread != 0 {
        count(counters::RESULT_UNREADABLE);
        lost(&current, what::GPU, None);
        return None;
    }
    let sent = if cookie.frequent { send_frequent(kind::GPU, record) } else { send(kind::GPU, record, Wake::Later) };
    if !sent {
        lost(&current, what::GPU, None);
    }
    Some(())
}

#[inline(always)]
fn read_results(record: &mut Gpu, cookie: Cookie) {
    let [first, second] = cookie.results;
    if let Some(argument) = first {
        match word(pick(&record.args, argument)) {
            Some(value) => record.results[0] = value,
            None => record.unread |= 1,
        }
    }
    if let Some(argument) = second {
        match word(pick(&record.args, argument)) {
            Some(value) => record.results[1] = value,
            None => record.unread |= 2,
        }
    }
    if let Some(structure) = cookie.structure {
        let start = pick(&record.args, structure.argument) + 8 * u64::from(structure.from);
        for i in 0..WORDS {
            if i < structure.words as usize {
                match word(start + 8 * i as u64) {
                    Some(value) => record.structure[i] = value,
                    None => record.unread |= 4,
                }
            }
        }
    }
}

#[inline(always)]
fn word(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// The context that is current on the thread.
#[inline(always)]
fn context(current: &Current) -> u64 {
    // SAFETY: the value is copied at once, and only this thread changes it.
    unsafe { GPU_CURRENT.get(current.id) }.map_or(0, |current| current.context)
}

#[inline(always)]
fn take_effect(current: &Current, effect: Effect, record: &Gpu) {
    if effect == Effect::None {
        return;
    }
    // SAFETY: as above.
    let now = unsafe { GPU_CURRENT.get(current.id) }.copied().unwrap_or_default();
    match effect {
        Effect::Set if record.args[0] != 0 => {
            set(current, GpuCurrent { context: record.args[0], ..now });
        }
        Effect::Push => push(current, now, record.args[0]),
        Effect::PushNew => push(current, now, record.results[0]),
        Effect::Set | Effect::Pop => pop(current, now),
        Effect::Drop if now.context == record.args[0] => pop(current, now),
        Effect::Drop | Effect::None => {}
    }
}

#[inline(always)]
fn push(current: &Current, now: GpuCurrent, context: u64) {
    // A full table of these makes room by itself.
    let _ = GPU_BELOW.insert(GpuBelow { thread: current.id, place: now.below }, now.context, 0);
    set(current, GpuCurrent { context, below: now.below + 1 });
}

#[inline(always)]
fn pop(current: &Current, now: GpuCurrent) {
    let Some(below) = now.below.checked_sub(1) else {
        thread_ends(current);
        return;
    };
    let place = GpuBelow { thread: current.id, place: below };
    // SAFETY: as above. One that is not there any more is not known.
    let context = unsafe { GPU_BELOW.get(place) }.copied().unwrap_or(0);
    let _ = GPU_BELOW.remove(place);
    set(current, GpuCurrent { context, below });
}

#[inline(always)]
fn set(current: &Current, now: GpuCurrent) {
    let _ = GPU_CURRENT.insert(current.id, now, 0);
}

/// The thread has no context any more. What lies under the last one it had goes by itself.
#[inline(always)]
pub fn thread_ends(current: &Current) {
    let _ = GPU_CURRENT.remove(current.id);
}
