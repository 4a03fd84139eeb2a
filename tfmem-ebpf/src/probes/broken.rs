//! A program that every verifier refuses: it follows an address that nobody checked. Loaded by the tests alone, which
//! prove by it that a refused program does not go unnoticed.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};

#[uprobe]
pub fn broken(ctx: ProbeContext) -> u32 {
    let Some(address) = ctx.arg::<u64>(0) else { return 0 };
    // SAFETY: never runs; that is the point.
    unsafe { core::ptr::read_volatile(address as *const u32) }
}
