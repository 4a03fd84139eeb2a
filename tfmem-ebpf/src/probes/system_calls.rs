//! The memory map through the system calls' own tracepoints: entered and left by the same thread, and only what
//! succeeded is sent. What the kernel maps on its own (a program's image, System V segments) is not seen.

use aya_ebpf::{macros::tracepoint, programs::TracePointContext};
use tfmem_common::{
    counters,
    lost::what,
    wire::{Memory, memory},
};

use super::memory::{file_of_descriptor, mapped, moved, record, tell};
use crate::{
    emit::{count, lost},
    gate::{Current, current, now},
    maps::SYSCALLS,
    unwind,
};

/// Offsets in the tracepoints' records, the same for all system calls: `args[0]` and the return value.
const ARGS: usize = 16;
const RET: usize = 16;

const MAP_ANONYMOUS: u64 = 0x20;

/// What a call takes from its entry to its return: five arguments and the time.
#[inline(always)]
fn enter(ctx: &TracePointContext) -> Option<()> {
    let current = current()?;
    // SAFETY: the record of a system call's entry holds six arguments.
    let args: [u64; 6] = unsafe { ctx.read_at(ARGS) }.ok()?;
    let saved = [args[0], args[1], args[2], args[3], args[4], now()];
    if SYSCALLS.insert(current.id, saved, 0).is_err() {
        count(counters::INFLIGHT_FULL);
        lost(&current, what::MAPPING, None);
    }
    Some(())
}

/// The saved entry and the return value; `None` when the call failed or its entry was not seen.
#[inline(always)]
fn leave(ctx: &TracePointContext) -> Option<(Current, [u64; 6], u64)> {
    let current = current()?;
    // SAFETY: the value is copied before it is removed; only this thread uses its key.
    let Some(saved) = (unsafe { SYSCALLS.get(current.id) }).copied() else {
        count(counters::RETURN_WITHOUT_ENTRY);
        return None;
    };
    let _ = SYSCALLS.remove(current.id);
    // SAFETY: the record of a system call's return holds the value.
    let ret: u64 = unsafe { ctx.read_at(RET) }.ok()?;
    // -4095..0 are errors.
    (ret < 0xffff_ffff_ffff_f001).then_some((current, saved, ret))
}

macro_rules! entries {
    ($($name:ident),*) => { $(
        #[tracepoint]
        pub fn $name(ctx: TracePointContext) -> u32 {
            enter(&ctx);
            0
        }
    )* };
}

entries!(enter_mmap, enter_munmap, enter_mremap, enter_brk, enter_madvise);

macro_rules! exits {
    ($($name:ident => $function:ident),*) => { $(
        #[tracepoint]
        pub fn $name(ctx: TracePointContext) -> u32 {
            if let Some((current, args, ret)) = leave(&ctx) {
                $function(&current, args, ret);
            }
            0
        }
    )* };
}

exits!(exit_mmap => mmap, exit_munmap => munmap, exit_mremap => mremap, exit_brk => brk, exit_madvise => madvise);

#[inline(always)]
fn mmap(current: &Current, args: [u64; 6], ret: u64) {
    let [_, len, prot, flags, fd, _] = args;
    let fd = if flags & MAP_ANONYMOUS != 0 { -1 } else { fd as i32 };
    mapped(current, ret, [len, prot, flags], fd, || file_of_descriptor(fd));
}

#[inline(always)]
fn munmap(current: &Current, args: [u64; 6], _ret: u64) {
    let memory = Memory { start: args[0], len: args[1], ..record(current, memory::MUNMAP, args[5]) };
    tell(current, memory);
}

#[inline(always)]
fn mremap(current: &Current, args: [u64; 6], ret: u64) {
    let [old_start, old_len, len, flags, _, began] = args;
    moved(current, ret, [old_start, old_len, len, flags], began);
}

#[inline(always)]
fn brk(current: &Current, _args: [u64; 6], ret: u64) {
    let stack = unwind::in_system_call(current);
    let memory = Memory { start: ret, stack, ..record(current, memory::BRK, now()) };
    tell(current, memory);
}

#[inline(always)]
fn madvise(current: &Current, args: [u64; 6], _ret: u64) {
    let memory = Memory { start: args[0], len: args[1], flags: args[2], ..record(current, memory::MADVISE, args[5]) };
    tell(current, memory);
}
