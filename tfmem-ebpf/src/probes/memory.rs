//! The memory map, through the system calls' own tracepoints: entered and left by the same thread, and only what
//! succeeded is sent.
//!
//! Time of a record: a *mapping* is true when the call returns (nobody else can have got that range since), an
//! *unmapping* from when the call began (another thread may get the range before this one returns). mremap is both: its
//! record also says how long the call took.

use aya_ebpf::{
    helpers::{
        bpf_probe_read_kernel,
        generated::{bpf_get_current_task, bpf_send_signal_thread},
    },
    macros::tracepoint,
    programs::TracePointContext,
};
use tfmem_common::{
    config::{FileId, PROCESS_HOLD},
    counters,
    wire::{Hold, Memory, kind, memory},
};

use crate::{
    emit::{Wake, count, header, send},
    gate::{Current, current, now},
    maps::{FILES_JUDGED, LEASE, SYSCALLS, kernel},
};

/// Offsets in the tracepoints' records, the same for all system calls: `args[0]` and the return value.
const ARGS: usize = 16;
const RET: usize = 16;

const PROT_EXEC: u64 = 4;
const MAP_ANONYMOUS: u64 = 0x20;
const SIGSTOP: u32 = 19;

/// What a call takes from its entry to its return: five arguments and the time.
#[inline(always)]
fn enter(ctx: &TracePointContext) -> Option<()> {
    let current = current()?;
    // SAFETY: the record of a system call's entry holds six arguments.
    let args: [u64; 6] = unsafe { ctx.read_at(ARGS) }.ok()?;
    let saved = [args[0], args[1], args[2], args[3], args[4], now()];
    if SYSCALLS.insert(current.id, saved, 0).is_err() {
        count(counters::INFLIGHT_FULL);
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

#[inline(always)]
fn record(current: &Current, call: u32, at: u64) -> Memory {
    Memory {
        header: header(kind::MEMORY, at, current),
        call,
        prot: 0,
        start: 0,
        len: 0,
        old_start: 0,
        old_len: 0,
        flags: 0,
        fd: -1,
        took: 0,
    }
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
    let memory = Memory { prot: prot as u32, start: ret, len, flags, fd, ..record(current, memory::MMAP, now()) };
    send(kind::MEMORY, memory, Wake::Later);
    if fd >= 0 && prot & PROT_EXEC != 0 && current.process.flags & PROCESS_HOLD != 0 {
        hold(current, ret, file_id(fd));
    }
}

#[inline(always)]
fn munmap(current: &Current, args: [u64; 6], _ret: u64) {
    let memory = Memory { start: args[0], len: args[1], ..record(current, memory::MUNMAP, args[5]) };
    send(kind::MEMORY, memory, Wake::Later);
}

#[inline(always)]
fn mremap(current: &Current, args: [u64; 6], ret: u64) {
    let at = now();
    let memory = Memory {
        start: ret,
        len: args[2],
        old_start: args[0],
        old_len: args[1],
        flags: args[3],
        took: at.saturating_sub(args[5]).min(u64::from(u32::MAX)) as u32,
        ..record(current, memory::MREMAP, at)
    };
    send(kind::MEMORY, memory, Wake::Later);
}

#[inline(always)]
fn brk(current: &Current, _args: [u64; 6], ret: u64) {
    let memory = Memory { start: ret, ..record(current, memory::BRK, now()) };
    send(kind::MEMORY, memory, Wake::Later);
}

#[inline(always)]
fn madvise(current: &Current, args: [u64; 6], _ret: u64) {
    let memory = Memory { start: args[0], len: args[1], flags: args[2], ..record(current, memory::MADVISE, args[5]) };
    send(kind::MEMORY, memory, Wake::Later);
}

/// Stops the thread (and with it, when it is not followed by ptrace, the process) before it can run code of a file that the loader has not judged. The signal is delivered on the
/// way back to user mode: not one instruction of the library runs before the loader lets the process go on.
#[inline(always)]
pub fn hold(current: &Current, start: u64, file: FileId) {
    // SAFETY: only presence is asked for.
    if file.ino != 0 && unsafe { FILES_JUDGED.get(file) }.is_some() {
        return;
    }
    if LEASE.get(0).is_none_or(|until| *until < now()) {
        count(counters::HOLD_LAPSED);
        return;
    }
    let record = Hold { header: header(kind::HOLD, now(), current), start, ino: file.ino, dev: file.dev, _pad: 0 };
    // Never stop a process of which the loader does not know.
    if !send(kind::HOLD, record, Wake::Now) {
        return;
    }
    // SAFETY: no preconditions.
    if unsafe { bpf_send_signal_thread(SIGSTOP) } != 0 {
        count(counters::HOLD_FAILED);
    }
}

/// Device and inode behind one of the current process's file descriptors; zero when the kernel's layout is not known.
#[inline(always)]
fn file_id(fd: i32) -> FileId {
    try_file_id(fd).unwrap_or_default()
}

#[inline(always)]
fn try_file_id(fd: i32) -> Option<FileId> {
    let layout = kernel();
    if layout.inode == 0 {
        return None;
    }
    // SAFETY: the helper checks every address.
    unsafe {
        let follow = |base: u64, offset: u32| -> Option<u64> {
            bpf_probe_read_kernel((base + u64::from(offset)) as *const u64).ok()
        };
        let files = follow(bpf_get_current_task(), layout.files)?;
        let table = follow(files, layout.fdt)?;
        let array = follow(table, layout.fd)?;
        let file: u64 = bpf_probe_read_kernel((array + fd as u64 * 8) as *const u64).ok()?;
        let inode = follow(file, layout.inode)?;
        let ino = follow(inode, layout.ino)?;
        let sb = follow(inode, layout.sb)?;
        let dev: u32 = bpf_probe_read_kernel((sb + u64::from(layout.dev)) as *const u32).ok()?;
        Some(FileId { ino, dev, _pad: 0 })
    }
}
