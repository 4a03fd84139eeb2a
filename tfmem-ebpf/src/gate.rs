//! Is the current process traced?

use aya_ebpf::helpers::{bpf_get_current_pid_tgid, generated::bpf_ktime_get_boot_ns};
use tfmem_common::config::Process;

use crate::maps::PROCESSES;

/// The current thread, when its process is traced.
#[derive(Clone, Copy)]
pub struct Current {
    /// tgid in the upper half, tid in the lower.
    pub id: u64,
    pub process: Process,
}

impl Current {
    #[inline(always)]
    pub fn pid(&self) -> u32 {
        (self.id >> 32) as u32
    }

    #[inline(always)]
    pub fn tid(&self) -> u32 {
        self.id as u32
    }
}

#[inline(always)]
pub fn current() -> Option<Current> {
    let id = bpf_get_current_pid_tgid();
    // SAFETY: the value is copied at once; a removed element that is reused meanwhile yields another process's
    // settings for one event, and those are re-checked by every read they lead to.
    let process = *unsafe { PROCESSES.get((id >> 32) as u32) }?;
    Some(Current { id, process })
}

#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: no arguments, no preconditions.
    unsafe { bpf_ktime_get_boot_ns() }
}
