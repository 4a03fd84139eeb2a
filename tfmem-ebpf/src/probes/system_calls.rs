//! The memory map through the system calls' own tracepoints: entered and left by the same thread, and only what
//! succeeded is sent. What the kernel maps on its own (a program's image, System V segments) is not seen.

use aya_ebpf::{EbpfContext as _, macros::tracepoint, programs::TracePointContext};
use tfmem_common::{
    counters,
    lost::what,
    wire::{Memory, memory},
};

use super::memory::{file_of_descriptor, mapped, moved, record, tell};
use crate::{
    emit::{count, lost},
    gate::{Current, now},
    thread, unwind,
};

/// Offsets in the tracepoints' records, the same for all system calls: `args[0]` and the return value.
const ARGS: usize = 16;
const RET: usize = 16;

/// Where the time stands in what is kept; no call needs its sixth argument.
const TIME: usize = 5;

const MAP_ANONYMOUS: u64 = 0x20;

/// What a call takes from its entry to its return: as many arguments as it has, and the time where it matters.
#[inline(always)]
fn enter<const ARGUMENTS: usize, const TIMED: bool>(ctx: &TracePointContext) -> Option<()> {
    let (current, thread) = thread::current()?;
    let Some(thread) = thread else {
        count(counters::INFLIGHT_FULL);
        lost(&current, what::MAPPING, None);
        return None;
    };
    // One after the other, from where the kernel has them: the verifier knows what such a record holds, and lets no
    // program read beyond.
    for number in 0..ARGUMENTS.min(TIME) {
        thread.call[number] = word(ctx, ARGS + number * 8);
    }
    if TIMED {
        thread.call[TIME] = now();
    }
    thread.in_call = 1;
    Some(())
}

#[inline(always)]
fn word(ctx: &TracePointContext, offset: usize) -> u64 {
    // SAFETY: the record has so many words; the verifier refuses the program where it has not. Volatile: the offset has to
    // stay a constant in the instruction.
    unsafe { core::ptr::read_volatile(ctx.as_ptr().cast::<u8>().add(offset).cast()) }
}

/// The saved entry and the return value; `None` when the call failed or its entry was not seen.
#[inline(always)]
fn leave(ctx: &TracePointContext) -> Option<(Current, [u64; 6], u64)> {
    let (current, thread) = thread::current()?;
    let Some(thread) = thread.filter(|thread| thread.in_call != 0) else {
        count(counters::RETURN_WITHOUT_ENTRY);
        return None;
    };
    thread.in_call = 0;
    let ret = word(ctx, RET);
    // -4095..0 are errors.
    (ret < 0xffff_ffff_ffff_f001).then_some((current, thread.call, ret))
}

macro_rules! entries {
    ($($name:ident: $arguments:literal $timed:literal),*) => { $(
        #[tracepoint]
        pub fn $name(ctx: TracePointContext) -> u32 {
            enter::<$arguments, $timed>(&ctx);
            0
        }
    )* };
}

entries!(
    enter_mmap: 6 false,
    enter_munmap: 2 true,
    enter_mremap: 5 true,
    enter_brk: 1 false,
    enter_madvise: 3 true
);

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
    thread::unmapped(current, args[0], args[1]);
    let memory = Memory { start: args[0], len: args[1], ..record(current, memory::MUNMAP, args[TIME]) };
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
    let memory =
        Memory { start: args[0], len: args[1], flags: args[2], ..record(current, memory::MADVISE, args[TIME]) };
    tell(current, memory);
}
