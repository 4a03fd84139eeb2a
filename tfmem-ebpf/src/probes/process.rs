//! Processes: made, turned into another program, ended.

use aya_ebpf::{macros::tracepoint, programs::TracePointContext};
use aya_log_ebpf::info;
use tfmem_common::{
    config::{Annotation, FileId, PROCESS_HOLD},
    counters,
    wire::{Fork, Life, kind},
};

use super::{gpu, memory::hold};
use crate::{
    emit::{Wake, count, header, send},
    gate::{current, now},
    maps::{PROCESSES, debug},
    thread,
};

/// `task:task_newtask`: `pid_t pid` at 8, `char comm[16]` at 12, `u64 clone_flags` at 32 (5.15 to 6.18 alike).
const NEWTASK_PID: usize = 8;
const NEWTASK_FLAGS: usize = 32;

const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;

/// Runs in the parent before the child's first instruction: the child is traced from its very beginning.
#[tracepoint]
pub fn task_newtask(ctx: TracePointContext) -> u32 {
    try_task_newtask(&ctx);
    0
}

#[inline(always)]
fn try_task_newtask(ctx: &TracePointContext) -> Option<()> {
    let current = current()?;
    // SAFETY: offsets as above.
    let (child, flags): (u32, u64) = unsafe { (ctx.read_at(NEWTASK_PID).ok()?, ctx.read_at(NEWTASK_FLAGS).ok()?) };
    if flags & CLONE_THREAD != 0 {
        return None;
    }
    if PROCESSES.insert(child, current.process, 0).is_err() {
        count(counters::PROCESSES_FULL);
        return None;
    }
    if debug() {
        info!(ctx, "pid {} made pid {}", current.pid(), child);
    }
    let record =
        Fork { header: header(kind::FORK, now(), &current), child, shares_memory: u32::from(flags & CLONE_VM != 0) };
    send(kind::FORK, record, Wake::Now);
    Some(())
}

/// `sched:sched_process_exec`: the new image is mapped, its first instruction has not run.
#[tracepoint]
pub fn sched_process_exec(_ctx: TracePointContext) -> u32 {
    if let Some(current) = current() {
        // The annotation's place and the code belonged to the old image's libraries.
        let mut process = current.process;
        process.annotations = [Annotation::default(); 2];
        process.ranges = 0;
        let _ = PROCESSES.insert(current.pid(), process, 0);
        thread::next_epoch();
        thread::forget(current.id);
        send(kind::EXEC, Life { header: header(kind::EXEC, now(), &current) }, Wake::Now);
        if process.flags & PROCESS_HOLD != 0 {
            hold(&current, 0, FileId::default());
        }
    }
    0
}

/// `sched:sched_process_exit`: a thread ends.
#[tracepoint]
pub fn sched_process_exit(_ctx: TracePointContext) -> u32 {
    if let Some(current) = current() {
        gpu::thread_ends(&current);
        thread::forget(current.id);
        let wake = if current.pid() == current.tid() { Wake::Now } else { Wake::Later };
        send(kind::EXIT, Life { header: header(kind::EXIT, now(), &current) }, wake);
    }
    0
}
