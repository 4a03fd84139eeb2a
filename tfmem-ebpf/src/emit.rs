//! Sending records and counting those that could not be sent.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use tfmem_common::{
    counters,
    wire::{self, Header},
};

use crate::{
    gate::Current,
    maps::{COUNTERS, EVENTS},
};

/// When the loader is woken: hot records wait for its timer, rare ones that it must act on wake it.
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

#[inline(always)]
pub fn header(kind: u16, at: u64, current: &Current) -> Header {
    Header { kind, version: wire::VERSION, _pad: 0, at, pid: current.pid(), tid: current.tid() }
}

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
