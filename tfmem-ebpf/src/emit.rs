//! Sending records and counting those that could not be sent.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use tfmem_common::{
    counters,
    wire::{self, Header},
};

use crate::{
    gate::Current,
    maps::{COUNTERS, EVENTS, wake_every},
};

/// When the loader is woken: hot records wait for its timer or until the buffer has filled by a part more, rare ones
/// that it must act on wake it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    Later,
    Now,
}

#[inline(always)]
pub fn count(slot: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(slot) {
        // SAFETY: a valid, aligned map value. Uprobe programs can be preempted, so the addition is atomic (the safe
        // wrapper, `AtomicU64::fetch_add`, is not offered for a target without compare-and-swap).
        let _: u64 = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, 1) };
    }
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
    entry.submit(flags(wake, size_of::<T>()));
    true
}

/// For a record of this size that has its place in the buffer already.
#[inline(always)]
pub fn flags(wake: Wake, size: usize) -> u64 {
    let filled = || EVENTS.query(u64::from(BPF_RB_AVAIL_DATA)) & (wake_every() - 1);
    match wake {
        Wake::Now => u64::from(BPF_RB_FORCE_WAKEUP),
        // This one has crossed the line. With several at once a line may go unnoticed; there are more to come.
        Wake::Later if filled() < size as u64 + RECORD_HEAD => u64::from(BPF_RB_FORCE_WAKEUP),
        Wake::Later => u64::from(BPF_RB_NO_WAKEUP),
    }
}

/// What the kernel puts in front of each record.
const RECORD_HEAD: u64 = 8;
