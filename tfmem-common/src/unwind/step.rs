//! One step up the stack: the same code in the kernel and in the tests that compare it with other unwinders.

use super::{
    KIND_END, KIND_NONE, KIND_PLT, KIND_RBP, KIND_RBP_DEREF, KIND_RSP, KIND_RSP_DEREF, KIND_SIGNAL, RBP_AT_RBP,
    RBP_UNDEFINED, Rule, SIGNAL_PC_BEHIND, SIGNAL_RBP_BEFORE, end,
};

/// What is followed up the stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    pub pc: u64,
    pub sp: u64,
    pub bp: u64,
}

/// What holds at the entry of a function, before its first instruction.
pub const AT_ENTRY: Rule = Rule::new(KIND_RSP, 0, 1);
/// What is tried where no table says anything: a function that keeps a frame pointer.
pub const FRAME_POINTER: Rule = Rule::new(KIND_RBP, 2, 2);

/// What a word of the stack is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// The caller's frame or its pc: the walk hangs on it.
    Walk,
    /// The caller's frame pointer: the walk hangs on it if a rule asks for the frame pointer further up. It may as well be
    /// a number of the program's.
    FramePointer,
}

/// The caller's registers, and whether its pc is exact (interrupted by a signal) and no return address. `read` reads a
/// word of the stack.
///
/// # Errors
/// Why there is no caller: one of [`end`].
#[inline(always)]
pub fn step(
    rule: Rule,
    at: Registers,
    mut read: impl FnMut(u64, For) -> Option<u64>,
) -> Result<(Registers, bool), u32> {
    let kind = rule.kind();
    let words = (i64::from(rule.offset()) as u64).wrapping_mul(8);
    // The word that leads to the frame, where it is in memory.
    let place = match kind {
        KIND_RBP_DEREF => at.bp.wrapping_add(words),
        KIND_RSP_DEREF | KIND_SIGNAL => at.sp.wrapping_add(words),
        _ => 0,
    };
    let found = if place == 0 { 0 } else { read(place, For::Walk).ok_or(end::UNREADABLE)? };
    let frame = match kind {
        KIND_RSP => at.sp.wrapping_add(words),
        KIND_RBP => at.bp.wrapping_add(words),
        KIND_RBP_DEREF | KIND_SIGNAL => found,
        KIND_RSP_DEREF => found.wrapping_add(8),
        KIND_PLT => at.sp.wrapping_add(if (at.pc & 15) as i16 >= rule.offset() { 16 } else { 8 }),
        KIND_END => return Err(end::COMPLETE),
        KIND_NONE => return Err(end::NO_ROW),
        _ => return Err(end::UNSUPPORTED),
    };
    let signal = kind == KIND_SIGNAL;
    // A handler may run on a stack of its own, above or below.
    if !signal && frame <= at.sp {
        return Err(end::NO_PROGRESS);
    }
    let pc_place = if signal { place.wrapping_add(SIGNAL_PC_BEHIND) } else { frame.wrapping_sub(8) };
    let pc = read(pc_place, For::Walk).ok_or(end::UNREADABLE)?;
    let bp_place = match rule.rbp() {
        _ if signal => place.wrapping_sub(SIGNAL_RBP_BEFORE),
        0 | RBP_UNDEFINED => 0,
        RBP_AT_RBP => at.bp,
        down => frame.wrapping_sub(u64::from(down) * 8),
    };
    let bp = if bp_place != 0 {
        read(bp_place, For::FramePointer).ok_or(end::UNREADABLE)?
    } else if rule.rbp() == RBP_UNDEFINED {
        0
    } else {
        at.bp
    };
    Ok((Registers { pc, sp: frame, bp }, signal))
}
