//! The memory map: what all ways of following it share.
//!
//! Time of a record: a *mapping* is true when the call returns (nobody else can have got that range since), an
//! *unmapping* from when the call began (another thread may get the range before this one returns). mremap is both: its
//! record also says how long the call took.

use aya_ebpf::helpers::{
    bpf_probe_read_kernel,
    generated::{bpf_get_current_task, bpf_send_signal_thread},
};
use tfmem_common::{
    config::{FileId, PROCESS_HOLD},
    counters,
    lost::what,
    wire::{Hold, Memory, kind, memory},
};

use crate::{
    emit::{Wake, count, header, lost, send, send_frequent, zero},
    gate::{Current, now},
    maps::{FILES_JUDGED, LEASE, kernel},
    unwind,
};

const PROT_EXEC: u64 = 4;
const SIGSTOP: u32 = 19;

#[inline(always)]
pub fn record(current: &Current, call: u32, at: u64) -> Memory {
    let zero = zero();
    Memory {
        header: header(kind::MEMORY, at, current),
        call,
        prot: 0,
        start: zero,
        len: zero,
        old_start: zero,
        old_len: zero,
        flags: zero,
        fd: -1,
        took: 0,
        stack: zero,
    }
}

#[inline(always)]
pub fn tell(current: &Current, memory: Memory) {
    if !send_frequent(kind::MEMORY, memory) {
        lost(current, what::MAPPING, None);
    }
}

/// A mapping was moved, grown or shrunk by a call that began at `began`.
#[inline(always)]
pub fn moved(current: &Current, start: u64, [old_start, old_len, len, flags]: [u64; 4], began: u64) {
    let at = now();
    let took = at.saturating_sub(began).min(u64::from(u32::MAX)) as u32;
    let stack = unwind::in_system_call(current);
    let memory = Memory { start, len, old_start, old_len, flags, took, stack, ..record(current, memory::MREMAP, at) };
    tell(current, memory);
}

/// A mapping was made. `fd`: -1 for none; `file` finds out which one it shows.
#[inline(always)]
pub fn mapped(current: &Current, start: u64, [len, prot, flags]: [u64; 3], fd: i32, file: impl FnOnce() -> FileId) {
    let stack = unwind::in_system_call(current);
    let memory = Memory { prot: prot as u32, start, len, flags, fd, stack, ..record(current, memory::MMAP, now()) };
    tell(current, memory);
    if fd >= 0 && prot & PROT_EXEC != 0 && current.process.flags & PROCESS_HOLD != 0 {
        hold(current, start, file());
    }
}

/// Stops the thread (and with it, when it is not followed by ptrace, the process) before it can run code of a file that
/// the loader has not judged. The signal is delivered on the way back to user mode: not one instruction of the library
/// runs before the loader lets the process go on.
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
pub fn file_of_descriptor(fd: i32) -> FileId {
    try_file_of_descriptor(fd).unwrap_or_default()
}

#[inline(always)]
fn try_file_of_descriptor(fd: i32) -> Option<FileId> {
    let layout = kernel();
    if layout.inode == 0 {
        return None;
    }
    // SAFETY: no preconditions.
    let files = follow(unsafe { bpf_get_current_task() }, layout.files)?;
    let table = follow(files, layout.fdt)?;
    let array = follow(table, layout.fd)?;
    try_file(follow(array, fd as u32 * 8)?)
}

/// The same of a `struct file`.
#[inline(always)]
pub fn file(file: u64) -> FileId {
    try_file(file).unwrap_or_default()
}

#[inline(always)]
fn try_file(file: u64) -> Option<FileId> {
    let layout = kernel();
    if layout.inode == 0 {
        return None;
    }
    let inode = follow(file, layout.inode)?;
    let ino = follow(inode, layout.ino)?;
    let sb = follow(inode, layout.sb)?;
    // SAFETY: the helper checks the address.
    let dev: u32 = unsafe { bpf_probe_read_kernel((sb + u64::from(layout.dev)) as *const u32) }.ok()?;
    Some(FileId { ino, dev, _pad: 0 })
}

#[inline(always)]
fn follow(base: u64, offset: u32) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base + u64::from(offset)) as *const u64) }.ok()
}
