//! Profiles and timelines in the formats of other tools.

#[cfg(feature = "flame")]
pub mod flame;
pub mod folded;
pub mod pprof;
pub mod speedscope;
pub mod trace_events;
