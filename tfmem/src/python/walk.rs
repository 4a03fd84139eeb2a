//! Threads and their frames.

use super::{
    Memory, Place, Unreadable,
    layout::{At, Layout, Top},
};

/// One frame of Python code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Address of the code object.
    pub code: u64,
    /// Bytes from the first instruction; `None`: it has not begun.
    pub offset: Option<u64>,
}

/// One thread that has run Python code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Address of its `PyThreadState`.
    pub state: u64,
    /// `pthread_self()`: the thread pointer, with glibc.
    pub pointer: u64,
}

/// More interpreters or threads than this are a list in a circle.
const MOST_LISTED: usize = 65_536;
/// Owners from here on are entries of the interpreter's loop, not code of Python's.
const NO_CODE: u8 = 3;

impl Layout {
    /// All threads of all interpreters.
    ///
    /// # Errors
    /// When the lists cannot be read to their ends.
    pub fn threads(&self, memory: &impl Memory, runtime: u64) -> Result<Vec<Thread>, Unreadable> {
        let mut threads = Vec::new();
        let mut interpreter = memory.word(runtime.wrapping_add(self.interpreters))?;
        for _ in 0..MOST_LISTED {
            if interpreter == 0 {
                return Ok(threads);
            }
            let mut state = memory.word(interpreter.wrapping_add(self.threads))?;
            while state != 0 {
                let pointer = memory.word(state.wrapping_add(self.thread_id))?;
                threads.push(Thread { state, pointer });
                if threads.len() > MOST_LISTED {
                    return Err(Unreadable::Nonsense);
                }
                state = memory.word(state.wrapping_add(self.next_thread))?;
            }
            interpreter = memory.word(interpreter.wrapping_add(self.next_interpreter))?;
        }
        Err(Unreadable::Nonsense)
    }

    /// The frames of a thread, the innermost first, at most `most`. `true`: these are all.
    ///
    /// # Errors
    /// When a frame cannot be read: the thread was running.
    pub fn frames(&self, memory: &impl Memory, state: u64, most: usize) -> Result<(Vec<Frame>, bool), Unreadable> {
        let mut frame = match self.top {
            Top::Field(field) => memory.word(state.wrapping_add(field))?,
            Top::Through(field, then) => memory.word(memory.word(state.wrapping_add(field))?.wrapping_add(then))?,
        };
        let mut frames = Vec::new();
        // Entries of the loop lie between frames of code, at most one for each.
        for _ in 0..most.saturating_mul(2) {
            if frame == 0 || frames.len() == most {
                break;
            }
            if self.is_code(memory, frame)? {
                frames.push(self.frame(memory, frame)?);
            }
            frame = memory.word(frame.wrapping_add(self.frame.back))?;
        }
        Ok((frames, frame == 0))
    }

    fn is_code(&self, memory: &impl Memory, frame: u64) -> Result<bool, Unreadable> {
        match self.frame.owner {
            Some(owner) => Ok(memory.byte(frame.wrapping_add(owner))? < NO_CODE),
            None => Ok(true),
        }
    }

    fn frame(&self, memory: &impl Memory, frame: u64) -> Result<Frame, Unreadable> {
        let code = memory.word(frame.wrapping_add(self.frame.code))? & !self.frame.tag;
        let instruction = frame.wrapping_add(self.frame.instruction);
        let offset = match self.frame.at {
            At::Index(unit) => {
                u64::try_from(memory.int(instruction)?).ok().map(|index| index.saturating_mul(u64::from(unit)))
            }
            // One that has not begun is at the unit before its first one.
            At::Address => memory.word(instruction)?.checked_sub(code.wrapping_add(self.code.instructions)),
        };
        Ok(Frame { code, offset })
    }

    /// The names of frames; those that cannot be read are left out.
    ///
    /// # Errors
    /// When not one of them can be read.
    pub fn places(&self, memory: &impl Memory, frames: &[Frame]) -> Result<Vec<Place>, Unreadable> {
        let places: Vec<_> = frames.iter().map(|frame| self.place(memory, frame.code, frame.offset)).collect();
        if let (Some(Err(error)), true) = (places.first(), places.iter().all(Result::is_err)) {
            return Err(*error);
        }
        Ok(places.into_iter().flatten().collect())
    }
}
