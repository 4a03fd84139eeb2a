//! From a library file to probes: which instruction of which function gets which BPF program.
//!
//! [`plan::resolve`] reads a library and says where the probes go (pure data), [`cache::Cache`] remembers that by
//! build id, [`kernel::layout`] says where the kernel keeps what the BPF programs read.

pub mod cache;
pub mod elf;
pub mod entry;
pub mod kernel;
pub mod plan;
