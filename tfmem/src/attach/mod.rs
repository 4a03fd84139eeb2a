//! From a library file to probes in it: elf → entry instruction → plan (pure data) → link (aya).
pub mod cache;
pub mod elf;
pub mod entry;
pub mod kernel;
pub mod link;
pub mod memory;
pub mod plan;
pub mod tracefs;
