//! Stacks of the traced program: walked in the kernel by the files' unwind tables, sent once, then known by a number.
//!
//! The number is a hash of the frames, and a frame is a place in a file: the same stack has the same number in every
//! process and wherever its libraries are mapped.

mod code;
pub mod maps;
mod python;
mod step;

use aya_ebpf::{
    helpers::{
        bpf_probe_read_kernel, bpf_probe_read_user,
        generated::{bpf_get_current_task_btf, bpf_probe_read_user as bpf_probe_read_user_raw, bpf_task_pt_regs},
    },
    programs::{ProbeContext, RetProbeContext},
};
use tfmem_common::{
    counters,
    python::MOST as MOST_PYTHON,
    unwind::{MOST_WORDS, Range, Registers, end, mix},
    wire::{self, STACK_HEAD, kind},
};

use self::{
    maps::{
        PAGE_WORDS, PYTHON_WOKEN, RETURNS, ReturnPlace, SCRATCHES, STACKS_SENT, Scratch, UNWIND_SCRATCH, WALK_WORDS,
        WALKS, WalkKey,
    },
    python::{python_rest, python_walk},
    step::{ENTRY, EXACT, GOES_ON, unwind_step},
};
use crate::{
    emit::{Wake, count, flags, header},
    gate::{Current, now},
    maps::{EVENTS, STACKS_COPY, STACKS_OFF, stacks},
};

/// Offsets in `struct pt_regs` of x86-64, which is part of the kernel's interface.
const RBP: u64 = 4 * 8;
const RIP: u64 = 16 * 8;
const RSP: u64 = 19 * 8;

/// The stack at a probe. The loader chooses places at which the stack pointer is what it was at the function's entry.
#[inline(always)]
pub fn at_entry(current: &Current, ctx: &ProbeContext) -> u64 {
    if stacks() == STACKS_OFF {
        return 0;
    }
    // SAFETY: the context's registers are valid while the program runs.
    let registers = unsafe { Registers { pc: (*ctx.regs).rip, sp: (*ctx.regs).rsp, bp: (*ctx.regs).rbp } };
    take(current, registers, EXACT | ENTRY)
}

/// A function whose return is probed is entered: the kernel will replace its return address, which is noted.
#[inline(always)]
pub fn entered(current: &Current, ctx: &ProbeContext) {
    if stacks() == STACKS_OFF {
        return;
    }
    // SAFETY: as above.
    let stack = unsafe { (*ctx.regs).rsp };
    // SAFETY: the helper checks the address.
    if let Ok(address) = unsafe { bpf_probe_read_user(stack as *const u64) } {
        let place = ReturnPlace { stack, pid: u64::from(current.pid()) };
        // An address that is in no file is the kernel's own already (a jump from one probed function to another): the
        // true one is known from then.
        if known(current, address) && RETURNS.insert(place, address, 0).is_err() {
            count(counters::RETURNS_FULL);
        }
    }
}

/// A function whose return is probed has returned: its return address is nobody's any more.
#[inline(always)]
pub fn returned(current: &Current, ctx: &RetProbeContext) {
    if stacks() == STACKS_OFF {
        return;
    }
    // SAFETY: the context's registers are valid while the program runs. The return took the address off the stack.
    let stack = unsafe { (*ctx.regs).rsp }.wrapping_sub(8);
    // There is none when the caller is code of no file.
    let _ = RETURNS.remove(ReturnPlace { stack, pid: u64::from(current.pid()) });
}

/// The stack of a thread in a system call.
#[inline(always)]
pub fn in_system_call(current: &Current) -> u64 {
    if stacks() == STACKS_OFF {
        return 0;
    }
    // SAFETY: no preconditions; the registers lie where the helper says, and reads of them are checked.
    let registers = unsafe {
        let at = bpf_task_pt_regs(bpf_get_current_task_btf()) as u64;
        let register = |offset: u64| bpf_probe_read_kernel((at + offset) as *const u64).unwrap_or(0);
        Registers { pc: register(RIP), sp: register(RSP), bp: register(RBP) }
    };
    take(current, registers, 0)
}

#[inline(always)]
fn known(current: &Current, address: u64) -> bool {
    code::is_known(current.process.ranges, address)
}

/// Walks the stack and returns its number; 0: there is none (counted).
#[inline(always)]
fn take(current: &Current, registers: Registers, state: u32) -> u64 {
    let Some((number, scratch)) = claim() else {
        count(counters::UNWIND_BUSY);
        return 0;
    };
    scratch.registers = registers;
    scratch.state = state;
    scratch.hash = 0;
    scratch.range = Range::default();
    scratch.ranges = current.process.ranges;
    scratch.pid = current.pid();
    scratch.key = WalkKey { pc: registers.pc, sp: registers.sp, tid: current.tid(), ranges: current.process.ranges };
    scratch.stack.header = header(kind::STACK, 0, current);
    let id = unwind_take(number);
    release(scratch);
    id
}

/// Takes the stack for which a scratch is prepared; returns its number.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_take(number: u32) -> u64 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    scratch.walk.unsure = 0;
    let known = unwind_again(number);
    if known != 0 && scratch.remembered == 0 {
        return known;
    }
    // Frames of Python's come and go without a word of the native stack being another.
    scratch.walk.python = python_walk(number);
    if known != 0 && scratch.remembered == scratch.walk.python {
        return known;
    }
    scratch.stack.count = 0;
    scratch.walk.count = 0;
    scratch.walk.reach = 0;
    scratch.walk.bp = scratch.registers.bp;
    scratch.walk.by_bp = 0;
    scratch.bp_at = 0;
    scratch.bp_first = 1;
    scratch.page_at = 0;
    let id = unwind_walk(number);
    unwind_send(number, id);
    id
}

/// Sends the stack in a scratch, or remembers how it was walked. A function of its own, as is [`unwind_again`]: what they
/// need of the BPF stack is not needed below them.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_send(number: u32, id: u64) -> u32 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    // SAFETY: only presence is asked for.
    if unsafe { STACKS_SENT.get(id) }.is_none() {
        if stacks() == STACKS_COPY {
            copy(scratch, id, scratch.walk.bp);
        }
        send(scratch, id);
    } else if scratch.walk.unsure == 0 && scratch.stack.end <= end::TRUNCATED {
        // Seen a second time: likely to come again. (One that is not remembered is walked again.)
        scratch.walk.id = id;
        let _ = WALKS.insert(&scratch.key, &scratch.walk, 0);
    }
    1
}

/// The number of the stack in a scratch, if it was walked from there before; else 0.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_again(number: u32) -> u64 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    again(unsafe { &mut *scratch })
}

/// The number of the stack that was found when a walk from here read the same words; 0: none.
#[inline(always)]
fn again(scratch: &mut Scratch) -> u64 {
    let Some(walk) = WALKS.get_ptr(&scratch.key) else { return 0 };
    // SAFETY: a valid map value. It may be overwritten meanwhile, by a walk from elsewhere: its words do not fit then, and
    // the number was read before them.
    let walk = unsafe { &*walk };
    // SAFETY: as above; volatile to keep the order.
    let id = unsafe { core::ptr::read_volatile(&raw const walk.id) };
    scratch.remembered = walk.python;
    let (bottom, reach) = (scratch.key.sp, walk.reach);
    // What of the stack is in `page` now, in words from the bottom: only what the walk read is asked for.
    let (mut from, mut len) = (0, 0);
    let mut differs = if walk.by_bp == 0 { 0 } else { walk.bp ^ scratch.registers.bp };
    for number in 0..WALK_WORDS {
        if number >= walk.count as usize {
            break;
        }
        let place = u64::from(walk.places[number]);
        if place.wrapping_sub(from) >= len {
            from = place;
            len = reach.wrapping_sub(place);
            if len > PAGE_WORDS as u64 {
                len = PAGE_WORDS as u64;
            }
            let address = bottom.wrapping_add(place << 3);
            // SAFETY: the helper checks the address; the buffer has so many words.
            let read = unsafe {
                bpf_probe_read_user_raw(scratch.page.as_mut_ptr().cast(), (len as u32) << 3, address as *const _)
            };
            if read != 0 {
                return 0;
            }
        }
        differs |= scratch.page[in_page(place.wrapping_sub(from))] ^ walk.words[number];
    }
    if differs == 0 { id } else { 0 }
}

/// `PAGE_WORDS - 1`, where the compiler cannot see it: it would find the mask below of no use and leave it out, and the
/// verifier of 6.1 does not follow why.
#[unsafe(no_mangle)]
static PAGE_MASK: u64 = PAGE_WORDS as u64 - 1;

#[inline(always)]
fn in_page(place: u64) -> usize {
    // SAFETY: reads a static.
    (place & unsafe { core::ptr::read_volatile(&raw const PAGE_MASK) }) as usize
}

/// The same for the words of a stack, of which there is one more than are used.
#[unsafe(no_mangle)]
static STACK_MASK: u64 = MOST_WORDS as u64;

#[inline(always)]
fn in_stack(number: usize) -> usize {
    // SAFETY: reads a static.
    number & unsafe { core::ptr::read_volatile(&raw const STACK_MASK) } as usize & MOST_WORDS
}

/// Walks the stack in a scratch; returns its number.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_walk(number: u32) -> u64 {
    let mut why = GOES_ON;
    for _ in 0..=MOST_WORDS {
        why = unwind_step(number);
        if why != GOES_ON {
            break;
        }
    }
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(number) else { return 0 };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    scratch.stack.end = why;
    if why != end::COMPLETE {
        count(counters::UNWIND_END_BASE + (why & 7));
    }
    if scratch.python.count == 0 && scratch.python.loops != 0 {
        count(counters::PYTHON_THREAD_UNKNOWN);
        scratch.walk.unsure = 1;
    }
    for _ in 0..MOST_PYTHON {
        if python_rest(number) == 0 {
            break;
        }
    }
    let hash = mix(mix(scratch.hash, u64::from(why)), scratch.walk.python);
    // The multiplication leaves the low bits weak: fold the high ones in. Never 0.
    (hash ^ (hash >> 29)) | 1
}

/// Sends the memory of a stack, from its innermost page on.
#[inline(always)]
fn copy(scratch: &Scratch, id: u64, bp: u64) {
    let WalkKey { pc, sp, .. } = scratch.key;
    for number in 0..wire::MOST_PAGES {
        let Some(mut entry) = EVENTS.reserve::<wire::Copy>(0) else {
            count(counters::DROPPED_BASE + u32::from(kind::COPY));
            return;
        };
        let address = (sp & !4095).wrapping_add(number << 12);
        let record = entry.as_mut_ptr();
        // SAFETY: the reservation is ours and as large as the record; the words are written by the helper, which checks
        // the address, and every other field here.
        let read = unsafe {
            (*record).header = scratch.stack.header;
            (*record).header.kind = kind::COPY;
            (*record).id = id;
            ((*record).pc, (*record).sp, (*record).bp, (*record).address) = (pc, sp, bp, address);
            bpf_probe_read_user_raw((&raw mut (*record).words).cast(), 4096, address as *const _)
        };
        if read != 0 {
            // The stack's end.
            entry.discard(0);
            return;
        }
        entry.submit(u64::from(aya_ebpf::bindings::BPF_RB_NO_WAKEUP));
    }
}

#[inline(always)]
fn send(scratch: &mut Scratch, id: u64) {
    scratch.stack.id = id;
    scratch.stack.header.at = now();
    let len = STACK_HEAD + (scratch.stack.count as usize & MOST_WORDS) * 8;
    // SAFETY: the record is plain data; the slice covers its head and the frames that it has, at most all of them.
    let bytes = unsafe { core::slice::from_raw_parts((&raw const scratch.stack).cast::<u8>(), len) };
    if EVENTS.output::<[u8]>(bytes, flags(wake(scratch))).is_err() {
        count(counters::DROPPED_BASE + u32::from(kind::STACK));
        return;
    }
    let _ = STACKS_SENT.insert(id, 1, 0);
}

/// Python's code objects are freed as everything else is: their names are to be read soon.
#[inline(always)]
fn wake(scratch: &Scratch) -> Wake {
    if scratch.python.count == 0 {
        return Wake::Later;
    }
    let Some(woken) = PYTHON_WOKEN.get_ptr_mut(0) else { return Wake::Later };
    // SAFETY: a valid map value; two that wake at once do no harm.
    unsafe {
        if scratch.stack.header.at.wrapping_sub(*woken) < WAKES_NS {
            return Wake::Later;
        }
        *woken = scratch.stack.header.at;
    }
    Wake::Now
}

/// The loader is woken no more often than this: for so long after it was, it comes by itself.
const WAKES_NS: u64 = 5_000_000;

/// A scratch that no other program uses: one that was preempted on this CPU may hold the first.
#[inline(always)]
fn claim() -> Option<(u32, &'static mut Scratch)> {
    for number in 0..SCRATCHES {
        let scratch = UNWIND_SCRATCH.get_ptr_mut(number)?;
        // SAFETY: a valid map value. Whoever adds first and finds itself alone has it; two that find each other both go
        // on, and never do two have it.
        unsafe {
            let busy = &raw mut (*scratch).busy;
            crate::emit::add(busy, 1);
            if core::ptr::read_volatile(busy) == 1 {
                return Some((number, &mut *scratch));
            }
            crate::emit::add(busy, u64::MAX);
        }
    }
    None
}

#[inline(always)]
fn release(scratch: &mut Scratch) {
    // SAFETY: a valid map value.
    unsafe { crate::emit::add(&raw mut scratch.busy, u64::MAX) };
}

const _: () = assert!(size_of::<wire::Stack>() == STACK_HEAD + (MOST_WORDS + 1) * 8);
// Also the mask of a count.
const _: () = assert!((MOST_WORDS + 1).is_power_of_two());
