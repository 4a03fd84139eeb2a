//! CPython seen from outside: which function and line each frame of a thread is at.
//!
//! Nothing is called in the process and no symbol but `_PyRuntime` is needed. All that is read may be garbage (the
//! process runs on meanwhile, or is hostile): every length and chain has a bound, and what does not make sense is an
//! error that is counted by the caller, never a panic.

mod code;
mod image;
mod kernel;
mod layout;
mod lines;
mod runtime;
mod walk;

pub use code::{Code, Place};
pub use image::Image;
pub use layout::{Layout, Version};
pub use runtime::Runtime;
pub use walk::{Frame, Thread};

use crate::target::memory::Unread;
pub use crate::target::memory::{Memory, Remote};

/// Why something of a Python could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("its memory could not be read")]
    Memory,
    #[error("what lies there is none of CPython's structures")]
    Nonsense,
    #[error("CPython {0} is not known")]
    Version(Version),
    #[error("a build without the interpreter lock is not known")]
    FreeThreaded,
    #[error("no `_PyRuntime` is mapped")]
    NoPython,
}

impl From<Unread> for Unreadable {
    fn from(_: Unread) -> Self {
        Self::Memory
    }
}
