//! From records of the ring buffer to typed events in order of time.

pub mod decode;
pub mod losses;
pub mod missed;
pub mod order;
