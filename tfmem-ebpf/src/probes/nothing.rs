//! The empty probes that `cargo xtask bench` measures the others against. Loaded by the bench alone.

use aya_ebpf::{
    macros::{tracepoint, uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext, TracePointContext},
};

#[uprobe]
pub fn nothing(_ctx: ProbeContext) -> u32 {
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
