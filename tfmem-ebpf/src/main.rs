//! The BPF programs of tfmem.
//!
//! Each program is a two-line wrapper around a `try_*` function; what goes wrong there is counted, never silent.
//! Programs leave at once for processes that are not traced (`PROCESSES`).

#![no_std]
#![no_main]
// One atomic addition (see `emit::count`). The crate is built with RUSTC_BOOTSTRAP=1 in any case, for build-std.
#![feature(core_intrinsics)]
#![allow(clippy::needless_pass_by_value, reason = "the program macros pass the context by value")]
#![allow(internal_features, reason = "the only way to an atomic addition on this target")]

mod emit;
mod gate;
mod maps;
mod origin;
mod probes;
mod thread;
mod unwind;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier proves that no panic is reachable; this only satisfies the compiler.
    loop {}
}

// Kernel helpers that read memory are GPL-only. The code itself is MIT OR GPL-2.0-only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
