//! Where CPython keeps what, by version.
//!
//! Up to 3.12 the offsets are those of the headers of 3.9.18, 3.10.13, 3.11.7 and 3.12.1 (`offsetof`; they do not change
//! within a minor version). From 3.13 on the interpreter says them itself: `_Py_DebugOffsets` at the start of
//! `_PyRuntime` (Include/internal/pycore_debug_offsets.h).

use std::fmt;

use super::Unreadable;

/// Major and minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u8, pub u8);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Offsets in bytes; `usize`-wide fields unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub version: Version,
    /// `_PyRuntimeState`: first interpreter.
    pub interpreters: u64,
    /// `PyInterpreterState`: next one, first thread.
    pub next_interpreter: u64,
    pub threads: u64,
    /// `PyThreadState`: next one, `pthread_self()`.
    pub next_thread: u64,
    pub thread_id: u64,
    pub top: Top,
    pub runs: Runs,
    pub frame: FrameLayout,
    pub code: CodeLayout,
    pub text: TextLayout,
}

/// How a thread's innermost frame is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// A field of `PyThreadState`.
    Field(u64),
    /// `PyThreadState.cframe`, then a field of that.
    Through(u64, u64),
}

/// Which frames one run of the interpreter's loop runs, and what of the run lies on the C stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// One frame each; nothing does.
    Untold,
    /// One frame each. `PyThreadState.cframe` does, which leads to the one before by its field.
    Each { c_frame: u64, previous: u64 },
    /// Up to a frame with this byte set. As above.
    Flag { byte: u64, c_frame: u64, previous: u64 },
    /// Up to a frame that is no code's, which does itself.
    Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// The caller's frame, the code object, the instruction.
    pub back: u64,
    pub code: u64,
    pub instruction: u64,
    pub at: At,
    /// Who owns the frame, one byte: 3 and above are no frames of Python code. `None`: all are.
    pub owner: Option<u64>,
    /// Bits of `code` that are no part of the address.
    pub tag: u64,
}

/// What a frame's `instruction` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// An `int`: offset in the code in units of so many bytes; -1: not begun.
    Index(u8),
    /// The address of the instruction.
    Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLayout {
    pub filename: u64,
    pub name: u64,
    /// Absent before 3.11.
    pub qualified: Option<u64>,
    /// An `int`.
    pub first_line: u64,
    pub lines: u64,
    /// Where the instructions are, inside of the object; before 3.11 they are a `bytes` object of their own.
    pub instructions: u64,
}

/// `PyUnicodeObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLayout {
    /// Where the characters of ASCII strings and those of others begin.
    pub ascii: u64,
    pub wide: u64,
    /// Bits of `state`: where the three of `kind` begin; `compact` and `ascii` follow.
    pub kind_bit: u32,
}

/// `_PyRuntime` begins with this from 3.13 on.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Words of `_Py_DebugOffsets` that are read: up to the code object's.
pub const OFFSETS_BYTES: usize = 60 * 8;

const fn text(version: Version) -> TextLayout {
    let (ascii, wide) = if version.1 < 12 { (48, 72) } else { (40, 56) };
    // `interned` takes two bits, from 3.14 on sixteen.
    TextLayout { ascii, wide, kind_bit: if version.1 < 14 { 2 } else { 16 } }
}

impl Layout {
    /// The layout of a version that does not say it itself.
    ///
    /// # Errors
    /// When it is not known.
    pub const fn of(version: Version) -> Result<Self, Unreadable> {
        let (interpreters, threads, thread_id, top, frame, code) = match version {
            Version(3, 9) => (32, 8, 176, Top::Field(24), old_frame(104, 1), old_code()),
            Version(3, 10) => (32, 8, 176, Top::Field(24), old_frame(96, 2), old_code()),
            Version(3, 11) => (40, 16, 152, Top::Through(56, 8), frame(48, 32, 69), code(72, 184)),
            Version(3, 12) => (40, 72, 136, Top::Through(56, 0), frame(8, 0, 70), code(68, 192)),
            other => return Err(Unreadable::Version(other)),
        };
        let runs = match version.1 {
            9 => Runs::Untold,
            10 => Runs::Each { c_frame: 48, previous: 8 },
            11 => Runs::Flag { byte: 68, c_frame: 56, previous: 16 },
            _ => Runs::Entry,
        };
        let text = text(version);
        Ok(Self {
            version,
            interpreters,
            next_interpreter: 0,
            threads,
            next_thread: 8,
            thread_id,
            top,
            runs,
            frame,
            code,
            text,
        })
    }

    /// The layout that the start of `_PyRuntime` says. `None`: it says none.
    ///
    /// # Errors
    /// When it is one that is not known.
    pub fn said(start: &[u8]) -> Result<Option<Self>, Unreadable> {
        if start.get(..8) != Some(COOKIE.as_slice()) {
            return Ok(None);
        }
        let word = |at: usize| -> Result<u64, Unreadable> {
            let bytes = start.get(at * 8..at * 8 + 8).ok_or(Unreadable::Memory)?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| Unreadable::Memory)?))
        };
        let hex = word(1)?;
        let version = Version((hex >> 24) as u8, (hex >> 16) as u8);
        if word(2)? != 0 {
            return Err(Unreadable::FreeThreaded);
        }
        // Each structure's fields in order, behind its size. 3.14 put some in between.
        let (interpreter, thread, frame, code) = match version {
            Version(3, 13) => (6, 19, 28, 34),
            Version(3, 14) => (6, 22, 31, 39),
            other => return Err(Unreadable::Version(other)),
        };
        let layout = Self {
            version,
            interpreters: word(5)?,
            next_interpreter: word(interpreter + 2)?,
            threads: word(interpreter + 3)?,
            next_thread: word(thread + 2)?,
            thread_id: word(thread + 5)?,
            top: Top::Field(word(thread + 4)?),
            runs: Runs::Entry,
            frame: FrameLayout {
                back: word(frame + 1)?,
                code: word(frame + 2)?,
                instruction: word(frame + 3)?,
                at: At::Address,
                owner: Some(word(frame + 5)?),
                tag: if version.1 < 14 { 0 } else { 3 },
            },
            code: CodeLayout {
                filename: word(code + 1)?,
                name: word(code + 2)?,
                qualified: Some(word(code + 3)?),
                lines: word(code + 4)?,
                first_line: word(code + 5)?,
                instructions: word(code + 9)?,
            },
            text: text(version),
        };
        if layout.sane() { Ok(Some(layout)) } else { Err(Unreadable::Nonsense) }
    }

    /// Offsets that a process says of itself may be anything.
    const fn sane(&self) -> bool {
        const MOST: u64 = 1 << 20;
        let Self { interpreters, next_interpreter, threads, next_thread, thread_id, frame, code, .. } = self;
        *interpreters < MOST
            && *next_interpreter < MOST
            && *threads < MOST
            && *next_thread < MOST
            && *thread_id < MOST
            && frame.back < MOST
            && frame.code < MOST
            && frame.instruction < MOST
            && code.lines < MOST
            && code.instructions < MOST
    }
}

const fn old_frame(last_instruction: u64, unit: u8) -> FrameLayout {
    FrameLayout { back: 24, code: 32, instruction: last_instruction, at: At::Index(unit), owner: None, tag: 0 }
}

const fn old_code() -> CodeLayout {
    CodeLayout { filename: 104, name: 112, qualified: None, first_line: 40, lines: 120, instructions: 48 }
}

const fn frame(back: u64, code: u64, owner: u64) -> FrameLayout {
    FrameLayout { back, code, instruction: 56, at: At::Address, owner: Some(owner), tag: 0 }
}

const fn code(first_line: u64, instructions: u64) -> CodeLayout {
    CodeLayout { filename: 112, name: 120, qualified: Some(128), first_line, lines: 136, instructions }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of `_PyRuntime` of 3.13.0, as its headers have it.
    fn said_by_3_13() -> Vec<u8> {
        let mut words = vec![0_u64; 60];
        words[0] = u64::from_le_bytes(*COOKIE);
        words[1] = 0x030d_00f0;
        let at = [(5, 632), (8, 7264), (9, 7344), (21, 8), (23, 72), (24, 152), (29, 8), (30, 0), (31, 56), (33, 70)];
        let code = [(35, 112), (36, 120), (37, 128), (38, 136), (39, 68), (43, 200)];
        for (place, value) in at.into_iter().chain(code) {
            words[place] = value;
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn what_an_interpreter_says_of_itself() {
        let layout = Layout::said(&said_by_3_13()).unwrap().unwrap();
        assert_eq!(layout.version, Version(3, 13));
        assert_eq!((layout.interpreters, layout.next_interpreter, layout.threads), (632, 7264, 7344));
        assert_eq!((layout.next_thread, layout.thread_id, layout.top), (8, 152, Top::Field(72)));
        assert_eq!((layout.frame.back, layout.frame.code, layout.frame.instruction), (8, 0, 56));
        assert_eq!(layout.frame.owner, Some(70));
        assert_eq!((layout.code.lines, layout.code.first_line, layout.code.instructions), (136, 68, 200));
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        assert_eq!(Layout::said(&[0; OFFSETS_BYTES]), Ok(None));
        let mut free_threaded = said_by_3_13();
        free_threaded[16] = 1;
        assert_eq!(Layout::said(&free_threaded), Err(Unreadable::FreeThreaded));
        let mut later = said_by_3_13();
        later[10] = 15;
        assert_eq!(Layout::said(&later), Err(Unreadable::Version(Version(3, 15))));
        let mut wild = said_by_3_13();
        wild[5 * 8 + 7] = 1;
        assert_eq!(Layout::said(&wild), Err(Unreadable::Nonsense));
        assert_eq!(Layout::said(&said_by_3_13()[..200]), Err(Unreadable::Memory));
        assert!(Layout::of(Version(3, 8)).is_err() && Layout::of(Version(3, 13)).is_err());
    }
}
