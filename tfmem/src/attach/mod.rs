//! From a library file to probes in it: elf → entry instruction → plan (pure data) → link (aya).
pub mod link;
pub mod plan;
pub mod tracefs;
