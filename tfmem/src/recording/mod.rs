//! Recordings: a trace in a file, which gives the same report again, without root and on any machine.
//!
//! The layout is described in [`format`]. One direction: a source of events (the live trace) → [`recorder`] → file →
//! [`reader`] → the same stages as live. What a report needs beside the events stands in the first and last frame.

mod bytes;
mod decode;
mod dictionary;
mod encode;
pub mod file;
pub mod format;
pub mod reader;
pub mod recorder;
pub mod replay;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests;
pub mod writer;
