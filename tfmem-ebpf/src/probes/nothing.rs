//! The empty probe that `cargo xtask bench` measures the others against. Loaded by the bench alone.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};

#[uprobe]
pub fn nothing(_ctx: ProbeContext) -> u32 {
    0
}
