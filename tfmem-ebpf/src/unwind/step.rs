//! One frame: where it is, and up to its caller.
//!
//! A global function: the verifier goes through it once and not once for each frame.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use tfmem_common::{
    counters,
    unwind::{AT_ENTRY, FRAME_POINTER, For, KIND_NONE, MOST_WORDS, Registers, Rule, end, frame, mix, step},
};

use super::{
    code, in_stack,
    maps::{PAGE_WORDS, RETURNS, ReturnPlace, Scratch, UNWIND_SCRATCH, WALK_WORDS},
    python,
};
use crate::{
    emit::count,
    maps::{STACKS_FP, stacks},
};

/// Bits of [`Scratch::state`]: the pc is exact, not the address behind a call.
pub const EXACT: u32 = 1;
/// At the entry of a function, whatever the tables say.
pub const ENTRY: u32 = 2;
/// The last step went by the frame pointer, as nothing was known of the code.
pub const GUESSED: u32 = 4;

/// `unwind_step` returns this when there may be more frames, else one of [`end`].
pub const GOES_ON: u32 = u32::MAX;

/// Adds one frame to the stack in the scratch of this number, and goes to its caller.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_step(scratch: u32) -> u32 {
    let Some(scratch) = UNWIND_SCRATCH.get_ptr_mut(scratch) else { return end::UNREADABLE };
    // SAFETY: a valid map value, claimed by this program.
    let scratch = unsafe { &mut *scratch };
    match one(scratch) {
        Ok(()) => GOES_ON,
        Err(end) => end,
    }
}

#[inline(always)]
fn one(scratch: &mut Scratch) -> Result<(), u32> {
    if let Some(placed) = python::place(scratch) {
        return placed;
    }
    let state = scratch.state;
    let back = u64::from(state & EXACT == 0);
    let mut place = code::place(scratch, scratch.registers.pc.wrapping_sub(back));
    if place.is_none() && state & EXACT == 0 {
        // Where a return probe waits, the kernel has put an address of its own.
        let at = ReturnPlace { stack: scratch.registers.sp.wrapping_sub(8), pid: u64::from(scratch.pid) };
        // SAFETY: the value is copied at once.
        if let Some(replaced) = unsafe { RETURNS.get(at) }.copied() {
            scratch.registers.pc = replaced;
            scratch.walk.unsure = 1;
            place = code::place(scratch, replaced.wrapping_sub(1));
        }
    }
    if place.is_none() && state & GUESSED != 0 {
        // What a guess led to is no code of a file: nothing speaks for it.
        return Err(end::UNKNOWN_CODE);
    }
    let address = scratch.registers.pc.wrapping_sub(back);
    let (file, inside) = place.unwrap_or((0, address));
    let known = frame(file, inside);
    let number = scratch.stack.count as usize;
    if number >= MOST_WORDS {
        return Err(end::TRUNCATED);
    }
    scratch.stack.frames[in_stack(number)] = known;
    scratch.stack.count = number as u32 + 1;
    scratch.hash = mix(scratch.hash, known);
    python::passed(scratch, file, inside);
    let rule = if state & ENTRY != 0 {
        AT_ENTRY
    } else if stacks() == STACKS_FP {
        FRAME_POINTER
    } else if file == 0 {
        Rule::NONE
    } else {
        code::rule(file, inside)
    };
    up(scratch, rule, file)
}

#[inline(always)]
fn up(scratch: &mut Scratch, rule: Rule, file: u32) -> Result<(), u32> {
    let guessed = rule.kind() == KIND_NONE;
    if guessed || rule.by_frame_pointer() {
        by_frame_pointer(scratch);
    }
    if guessed && file != 0 && scratch.registers.bp == 0 {
        // Start-up code has no rules, and marks the outermost frame by an empty frame pointer (System V ABI, 3.4.1).
        return Err(end::COMPLETE);
    }
    // A table may come yet that knows better.
    scratch.walk.unsure |= u32::from(guessed);
    let rule = if guessed {
        count(if file == 0 { counters::UNWIND_UNKNOWN_CODE } else { counters::UNWIND_NO_ROW });
        FRAME_POINTER
    } else {
        rule
    };
    let unknown = if file == 0 { end::UNKNOWN_CODE } else { end::NO_ROW };
    let registers = scratch.registers;
    match step(rule, registers, |address, what| read(scratch, address, what)) {
        Ok((Registers { pc: 0, .. }, _)) => Err(if guessed { unknown } else { end::COMPLETE }),
        Ok((caller, exact)) => {
            scratch.registers = caller;
            scratch.state = (u32::from(exact) * EXACT) | (u32::from(guessed) * GUESSED);
            Ok(())
        }
        Err(why) => Err(if guessed { unknown } else { why }),
    }
}

/// The walk hangs on the frame pointer from here on.
#[inline(always)]
fn by_frame_pointer(scratch: &mut Scratch) {
    if scratch.bp_first != 0 {
        scratch.walk.by_bp = 1;
    } else if scratch.bp_at != 0 {
        note(scratch, scratch.bp_at, scratch.registers.bp);
        scratch.bp_at = 0;
    }
}

/// Reads a word of the stack, and remembers it if the walk hangs on it.
#[inline(always)]
fn read(scratch: &mut Scratch, address: u64, what: For) -> Option<u64> {
    let word = word(scratch, address)?;
    if what == For::FramePointer {
        scratch.bp_at = address;
        scratch.bp_first = 0;
    } else {
        note(scratch, address, word);
    }
    Some(word)
}

#[inline(always)]
fn note(scratch: &mut Scratch, address: u64, word: u64) {
    let place = address.wrapping_sub(scratch.key.sp) >> 3;
    let number = scratch.walk.count as usize;
    // One that has no room overwrites another, and the walk is not remembered: the verifier wants a mask, no branch.
    scratch.walk.unsure |= u32::from(number >= WALK_WORDS) | u32::from(place > u64::from(u16::MAX));
    scratch.walk.places[number & (WALK_WORDS - 1)] = place as u16;
    scratch.walk.words[number & (WALK_WORDS - 1)] = word;
    scratch.walk.count = number as u32 + 1;
    if place >= scratch.walk.reach {
        scratch.walk.reach = place + 1;
    }
}

/// A word of the process's stack, which is read a page at a time.
#[inline(always)]
fn word(scratch: &mut Scratch, address: u64) -> Option<u64> {
    if address & 7 != 0 {
        return None;
    }
    let page = address & !4095;
    if scratch.page_at != page {
        scratch.page_at = 0;
        // SAFETY: the helper checks the address; the buffer is a page.
        let read = unsafe { bpf_probe_read_user(scratch.page.as_mut_ptr().cast(), 4096, page as *const _) };
        if read != 0 {
            return None;
        }
        scratch.page_at = page;
    }
    Some(scratch.page[(address >> 3) as usize & (PAGE_WORDS - 1)])
}
