//! Processes: who they are, what they map, starting and following them.

pub mod clock;
pub mod guard;
pub mod info;
mod job;
pub mod maps;
pub mod memory;
pub mod ptrace;
pub mod spawn;
pub mod warden;
