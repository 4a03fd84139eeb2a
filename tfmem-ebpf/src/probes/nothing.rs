//! What `cargo xtask bench` measures the other probes against: empty ones, and one that sends a record about nothing. Loaded
//! by the bench alone.

use aya_ebpf::{
    macros::{tracepoint, uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext, TracePointContext},
};
use tfmem_common::wire::{Chunk, Header};

use crate::{
    emit::{Wake, send, zero},
    gate::now,
};

#[uprobe]
pub fn nothing(_ctx: ProbeContext) -> u32 {
    0
}

/// What no probe that tells of each call can do without: the time, and a record of a chunk's size in the buffer.
#[uprobe]
pub fn record_only(_ctx: ProbeContext) -> u32 {
    let zero = zero();
    let header = Header { kind: 0, version: 0, _pad: 0, at: now(), pid: 0, tid: 0 };
    send(0, (header, [zero; (size_of::<Chunk>() - size_of::<Header>()) / 8]), Wake::Later);
    0
}

#[uretprobe]
pub fn nothing_ret(_ctx: RetProbeContext) -> u32 {
    0
}

#[tracepoint]
pub fn nothing_tracepoint(_ctx: TracePointContext) -> u32 {
    0
}
