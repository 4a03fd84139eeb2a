//! Wire types shared by the BPF programs (`tfmem-ebpf`) and the loader (`tfmem`).
//!
//! Everything here is plain data: `#[repr(C)]`, explicit padding, sizes checked at compile time. Nothing is an
//! enum or a `bool` on the wire; the loader decodes with checked conversions.

#![no_std]

pub mod config;
pub mod cookie;
pub mod counters;
pub mod gpu;
pub mod lost;
pub mod python;
pub mod unwind;
pub mod wire;
