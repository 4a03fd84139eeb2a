//! The memory map through kprobes on the kernel's own functions: no other process's system calls become slower, and what
//! the kernel maps and unmaps on its own (System V segments, rings of asynchronous I/O) is seen too.
//!
//! * `map_enter`, `map_leave`: `mmap_region(file, addr, len, vm_flags, …)`, through which all new mappings come.
//! * `unmap_*`: what takes mappings out; its name and arguments changed from version to version, see
//!   `attach::memory`.
//! * `mremap_enter`, `mremap_leave`, `brk_leave`, `madvise_leave`: the system calls themselves, whose registers are still
//!   those of the entry.
//!
//! Inside of `brk`, `mremap`, `mmap` and `execve` the functions serve the call, whose own record says it all.

use aya_ebpf::{
    helpers::{
        bpf_probe_read_kernel,
        generated::{bpf_get_current_task_btf, bpf_task_pt_regs},
    },
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tfmem_common::{
    counters,
    lost::what,
    wire::{Memory, memory},
};

use super::memory::{file, mapped, moved, record, tell};
use crate::{
    emit::{count, lost},
    gate::{Current, current, now},
    maps::SYSCALLS,
    thread, unwind,
};

/// `VM_READ`, `VM_WRITE`, `VM_EXEC` have the values of `PROT_*` (include/linux/mm.h).
const VM_PROTECTION: u64 = 7;
const VM_SHARED: u64 = 8;
const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_ANONYMOUS: u64 = 0x20;

/// x86-64 system calls (arch/x86/entry/syscalls/syscall_64.tbl).
const MMAP: u64 = 9;
const BRK: u64 = 12;
const MREMAP: u64 = 25;
const EXECVE: u64 = 59;
const EXECVEAT: u64 = 322;

/// Set in the key of a thread that is inside an unmapping, or inside `mremap`: a mapping under way has the thread's own.
const UNMAPPING: u64 = 1 << 63;
const MOVING: u64 = 1 << 31;

/// Errors are -4095..0.
const FIRST_ERROR: u64 = 0xffff_ffff_ffff_f001;

/// What the thread had in its registers when it entered the kernel: arguments and number of its system call.
struct Call {
    args: [u64; 4],
    number: u64,
}

/// Offsets in `struct pt_regs` (arch/x86/include/uapi/asm/ptrace.h): di, si, dx, r10, orig_ax.
const REGISTERS: [u64; 5] = [112, 104, 96, 56, 120];

#[inline(always)]
fn call() -> Option<Call> {
    // SAFETY: no preconditions; the thread is in the kernel, so its user registers lie on its stack.
    let registers = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64;
    let read = |offset: u64| -> Option<u64> {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_kernel((registers + offset) as *const u64) }.ok()
    };
    let [di, si, dx, r10, number] = REGISTERS;
    Some(Call { args: [read(di)?, read(si)?, read(dx)?, read(r10)?], number: read(number)? })
}

#[kprobe]
pub fn map_enter(ctx: ProbeContext) -> u32 {
    try_map_enter(&ctx);
    0
}

#[inline(always)]
fn try_map_enter(ctx: &ProbeContext) -> Option<()> {
    let current = current()?;
    // The image of a new program: what it replaces is gone only when `exec` succeeds, and it is read whole then.
    if matches!(call()?.number, EXECVE | EXECVEAT) {
        return None;
    }
    let saved = [ctx.arg(0)?, ctx.arg(1)?, ctx.arg(2)?, ctx.arg(3)?, 0, 0];
    begin(&current, current.id, saved);
    Some(())
}

#[kretprobe]
pub fn map_leave(ctx: RetProbeContext) -> u32 {
    try_map_leave(&ctx);
    0
}

#[inline(always)]
fn try_map_leave(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    let [shown, _, len, flags, ..] = end(current.id)?;
    let start: u64 = ctx.ret();
    if start >= FIRST_ERROR {
        return None;
    }
    let sharing = if flags & VM_SHARED != 0 { MAP_SHARED } else { MAP_PRIVATE };
    let (anonymous, fd) = if shown == 0 { (MAP_ANONYMOUS, -1) } else { (0, 0) };
    mapped(&current, start, [len, flags & VM_PROTECTION, sharing | anonymous], fd, || file(shown));
    Some(())
}

/// `(…, start, end)` behind three other arguments.
#[kprobe]
pub fn unmap_enter_range(ctx: ProbeContext) -> u32 {
    unmap(ctx.arg(3), ctx.arg(4));
    0
}

/// `(…, start, length)` behind two other arguments.
#[kprobe]
pub fn unmap_enter_length(ctx: ProbeContext) -> u32 {
    unmap_length(ctx.arg(2), ctx.arg(3));
    0
}

/// `(…, start, length)` behind one other argument.
#[kprobe]
pub fn unmap_enter_first(ctx: ProbeContext) -> u32 {
    unmap_length(ctx.arg(1), ctx.arg(2));
    0
}

#[inline(always)]
fn unmap_length(start: Option<u64>, len: Option<u64>) {
    if let (Some(start), Some(len)) = (start, len) {
        unmap(Some(start), Some(start.wrapping_add(len)));
    }
}

#[inline(always)]
fn unmap(start: Option<u64>, end: Option<u64>) -> Option<()> {
    let current = current()?;
    if matches!(call()?.number, MMAP | BRK | MREMAP | EXECVE | EXECVEAT) {
        return None;
    }
    begin(&current, current.id | UNMAPPING, [start?, end?, now(), 0, 0, 0]);
    Some(())
}

#[kretprobe]
pub fn unmap_leave(ctx: RetProbeContext) -> u32 {
    try_unmap_leave(&ctx);
    0
}

#[inline(always)]
fn try_unmap_leave(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    let [start, end, at, ..] = end(current.id | UNMAPPING)?;
    let ret: i32 = ctx.ret();
    // Some versions return 1 when they have let go of the lock.
    if ret >= 0 {
        thread::unmapped(&current, start, end.wrapping_sub(start));
        tell(&current, Memory { start, len: end.wrapping_sub(start), ..record(&current, memory::MUNMAP, at) });
    }
    Some(())
}

#[inline(always)]
fn begin(current: &Current, key: u64, saved: [u64; 6]) {
    // SAFETY: only presence is asked for.
    if unsafe { SYSCALLS.get(key) }.is_some() {
        // The return was missed: the kernel follows only so many of them at once.
        count(counters::STALE_ENTRY);
        lost(current, what::MAPPING, None);
    }
    if SYSCALLS.insert(key, saved, 0).is_err() {
        count(counters::INFLIGHT_FULL);
        lost(current, what::MAPPING, None);
    }
}

/// What was saved at the entry; nothing when the call is one that is left out, or was under way when the probe went in.
#[inline(always)]
fn end(key: u64) -> Option<[u64; 6]> {
    // SAFETY: the value is copied before it is removed; only this thread uses its keys.
    let saved = *unsafe { SYSCALLS.get(key) }?;
    let _ = SYSCALLS.remove(key);
    Some(saved)
}

macro_rules! calls {
    ($($name:ident => $function:ident),*) => { $(
        #[kretprobe]
        pub fn $name(ctx: RetProbeContext) -> u32 {
            $function(&ctx);
            0
        }
    )* };
}

calls!(brk_leave => brk, mremap_leave => mremap, madvise_leave => madvise);

#[inline(always)]
fn brk(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    let stack = unwind::in_system_call(&current);
    tell(&current, Memory { start: ctx.ret(), stack, ..record(&current, memory::BRK, now()) });
    Some(())
}

#[kprobe]
pub fn mremap_enter(_ctx: ProbeContext) -> u32 {
    if let Some(current) = current() {
        begin(&current, current.id | MOVING, [now(), 0, 0, 0, 0, 0]);
    }
    0
}

#[inline(always)]
fn mremap(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    let [began, ..] = end(current.id | MOVING)?;
    let start: u64 = ctx.ret();
    let [old_start, old_len, len, flags] = call()?.args;
    if start < FIRST_ERROR {
        moved(&current, start, [old_start, old_len, len, flags], began);
    }
    Some(())
}

#[inline(always)]
fn madvise(ctx: &RetProbeContext) -> Option<()> {
    let current = current()?;
    let ret: u64 = ctx.ret();
    let [start, len, advice, _] = call()?.args;
    if ret < FIRST_ERROR {
        tell(&current, Memory { start, len, flags: advice, ..record(&current, memory::MADVISE, now()) });
    }
    Some(())
}
