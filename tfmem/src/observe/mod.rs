//! Looking at a process from outside: what is resident, and where. The results are observation events.

pub mod pagemap;
pub mod snapshot;
