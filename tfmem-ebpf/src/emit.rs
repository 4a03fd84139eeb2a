//! Sending records and counting those that could not be sent.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::bindings::{BPF_NOEXIST, BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use tfmem_common::{
    counters,
    lost::{Key, Lost},
    wire::{self, Header},
};

use crate::{
    gate::Current,
    maps::{COUNTERS, EVENTS, LOST, crowded, wake_every},
};

/// When the loader is woken: records wait for its timer, rare ones that it must act on wake it; so do frequent ones when
/// they have filled a part more of the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    Later,
    Now,
}

#[inline(always)]
pub fn count(slot: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(slot) {
        // SAFETY: a valid, aligned map value.
        unsafe { add(counter, 1) };
    }
}

/// Something of a process was lost: `what` (see `tfmem_common::lost::what`), with the size of its block where there is
/// one and it is known.
#[inline(always)]
pub fn lost(current: &Current, what: u32, bytes: Option<u64>) {
    let key = Key { pid: current.pid(), what };
    if LOST.get_ptr_mut(key).is_none() {
        // Another CPU may be first.
        let _ = LOST.insert(key, Lost::default(), u64::from(BPF_NOEXIST));
    }
    let Some(lost) = LOST.get_ptr_mut(key) else {
        count(counters::LOST_WITHOUT_PROCESS);
        return;
    };
    // SAFETY: a valid map value; only the addresses of its fields are taken.
    let (records, sum, unsized_records) =
        unsafe { (&raw mut (*lost).records, &raw mut (*lost).bytes, &raw mut (*lost).unsized_records) };
    let (counter, more) = match bytes {
        Some(bytes) => (sum, bytes),
        None => (unsized_records, 1),
    };
    // SAFETY: fields of a valid, aligned map value.
    unsafe {
        add(records, 1);
        add(counter, more);
    }
}

/// Adds in one go: uprobe programs can be preempted. (The safe wrapper, `AtomicU64::fetch_add`, is not offered for a
/// target without compare-and-swap.)
///
/// # Safety
/// `value` is a valid, aligned map value.
#[inline(always)]
pub unsafe fn add(value: *mut u64, more: u64) {
    // SAFETY: the caller's promise.
    let _: u64 = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(value, more) };
}

/// Zero, hidden from the compiler. Where fields that are zero lie side by side it would call a function that writes them
/// byte by byte.
#[inline(always)]
pub fn zero() -> u64 {
    core::hint::black_box(0)
}

#[inline(always)]
pub fn header(kind: u16, at: u64, current: &Current) -> Header {
    Header { kind, version: wire::VERSION, _pad: 0, at, pid: current.pid(), tid: current.tid() }
}

/// Sends a frequent record, unless the rest of the buffer is kept for rare ones. `false`: it is lost, and counted under
/// the record's kind.
#[inline(always)]
pub fn send_frequent<T: 'static>(kind: u16, record: T) -> bool {
    let waiting = EVENTS.query(u64::from(BPF_RB_AVAIL_DATA));
    if waiting > crowded() {
        count(counters::DROPPED_BASE + u32::from(kind));
        return false;
    }
    // With several at once a line may be crossed unnoticed; there are more to come.
    let filled = (waiting & (wake_every() - 1)) + size_of::<T>() as u64 + RECORD_HEAD;
    send(kind, record, if filled >= wake_every() { Wake::Now } else { Wake::Later })
}

/// What the kernel puts in front of each record.
const RECORD_HEAD: u64 = 8;

/// Sends one record. `false`: the buffer was full; the loss is counted under the record's kind.
#[inline(always)]
pub fn send<T: 'static>(kind: u16, record: T, wake: Wake) -> bool {
    let Some(mut entry) = EVENTS.reserve::<T>(0) else {
        count(counters::DROPPED_BASE + u32::from(kind));
        return false;
    };
    entry.write(record);
    entry.submit(flags(wake));
    true
}

#[inline(always)]
pub fn flags(wake: Wake) -> u64 {
    match wake {
        Wake::Later => u64::from(BPF_RB_NO_WAKEUP),
        Wake::Now => u64::from(BPF_RB_FORCE_WAKEUP),
    }
}
