//! What the unwinder in the kernel is told of an interpreter, and what makes a code object the same one.

use tfmem_common::python::{ABSENT, Python, RUN_EACH, RUN_ENTRY, RUN_FLAG, RUN_UNTOLD, WORDS, identity};

use super::{
    Layout, Memory, Unreadable,
    layout::{At, Runs, Top},
};

/// A frame is read as a whole, if it is no longer than this.
const MOST_READ: u64 = 120;

impl Layout {
    /// `None`: an offset is none that can be (they come from the traced process's files).
    pub(super) fn for_kernel(&self, runtime: u64) -> Option<Python> {
        let offset = |value: u64| u32::try_from(value).ok();
        let optional = |value: Option<u64>| value.map_or(Some(ABSENT), offset);
        let (top, through) = match self.top {
            Top::Field(field) => (field, None),
            Top::Through(field, then) => (field, Some(then)),
        };
        let (runs, entry, c_frame) = match self.runs {
            Runs::Untold => (RUN_UNTOLD, None, None),
            Runs::Each { c_frame, previous } => (RUN_EACH, None, Some((c_frame, previous))),
            Runs::Flag { byte, c_frame, previous } => (RUN_FLAG, Some(byte), Some((c_frame, previous))),
            Runs::Entry => (RUN_ENTRY, None, None),
        };
        let frame = &self.frame;
        let words = [frame.back, frame.code, frame.instruction].map(|at| at.saturating_add(8));
        let bytes = [frame.owner, entry].map(|at| at.map_or(0, |at| at.saturating_add(1)));
        let size = words.into_iter().chain(bytes).max()?.next_multiple_of(8);
        if size > MOST_READ {
            return None;
        }
        Some(Python {
            interpreters: runtime.checked_add(self.interpreters)?,
            tag: frame.tag,
            generation: 0,
            next_interpreter: offset(self.next_interpreter)?,
            threads: offset(self.threads)?,
            next_thread: offset(self.next_thread)?,
            thread_id: offset(self.thread_id)?,
            top: offset(top)?,
            top_through: optional(through)?,
            c_frame: optional(c_frame.map(|(field, _)| field))?,
            c_previous: offset(c_frame.map_or(0, |(_, previous)| previous))?,
            size: offset(size)?,
            back: offset(frame.back)?,
            code: offset(frame.code)?,
            instruction: offset(frame.instruction)?,
            owner: optional(frame.owner)?,
            entry: optional(entry)?,
            unit: match frame.at {
                At::Index(unit) => u32::from(unit),
                At::Address => 0,
            },
            runs,
            instructions: offset(self.code.instructions)?,
            first_line: offset(self.code.first_line)?,
            identity: offset(self.identity()?)?,
            file_word: offset(self.file_word()? as u64)?,
            text: if self.numbered() { ABSENT } else { offset(self.text.ascii)? },
            eval_file: 0,
            eval: [[0; 2]; 2],
            _pad: 0,
        })
    }

    /// Does anything on the C stack say where the interpreter's loop runs?
    pub(super) const fn tells_runs(&self) -> bool {
        !matches!(self.runs, Runs::Untold)
    }

    /// Where the words of a code object are that tell it from others: up to its table of lines.
    const fn identity(&self) -> Option<u64> {
        self.code.lines.checked_sub(8 * (WORDS as u64 - 1))
    }

    /// Which of them is its file's name.
    fn file_word(&self) -> Option<usize> {
        let word = self.code.filename.checked_sub(self.identity()?)? / 8;
        usize::try_from(word).ok().filter(|&word| word < WORDS)
    }

    /// From 3.12 on these words hold a number that no other code object has (`co_version`).
    const fn numbered(&self) -> bool {
        self.version.1 >= 12
    }

    /// What tells a code object from another one that is at its address later.
    ///
    /// # Errors
    /// When nothing can be read there.
    pub fn identity_of(&self, memory: &impl Memory, code: u64) -> Result<u32, Unreadable> {
        let (at, file) = self.identity().zip(self.file_word()).ok_or(Unreadable::Nonsense)?;
        let mut words = [0; WORDS];
        for (number, word) in (0..).zip(&mut words) {
            *word = memory.word(code.wrapping_add(at + 8 * number))?;
        }
        let line = memory.int(code.wrapping_add(self.code.first_line))?;
        let mut text = [0; 2];
        if !self.numbered() {
            let name = words[file].wrapping_add(self.text.ascii);
            text = [memory.word(name)?, memory.word(name.wrapping_add(8))?];
        }
        Ok(identity(&words, line.cast_unsigned(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;

    #[test]
    fn every_known_layout_fits() {
        for minor in 9..=12 {
            let layout = Layout::of(Version(3, minor)).unwrap();
            let told = layout.for_kernel(0x1000).unwrap();
            assert_eq!(told.interpreters, 0x1000 + layout.interpreters);
            assert!(told.size.is_multiple_of(8) && told.size >= told.instruction + 4, "3.{minor}: {told:?}");
            assert_eq!(told.c_frame == ABSENT, minor == 9 || minor == 12, "3.{minor}");
        }
        let mut far = Layout::of(Version(3, 12)).unwrap();
        far.frame.back = 1 << 19;
        assert_eq!(far.for_kernel(0), None);
    }
}
