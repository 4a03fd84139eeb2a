//! The per-process record of allocations and handles, built only from events.
pub mod types;
