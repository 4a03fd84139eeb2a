//! What the loader and the BPF programs share of Python: where an interpreter keeps its frames, and a frame as it
//! travels.

use crate::unwind::{FRAME_ADDRESS, mix};

/// Frames of Python code have this number for a file, and the code object's address; another word follows, see [`at`].
pub const FILE: u32 = 0xffff;

/// Of an offset: the version has no such field.
pub const ABSENT: u32 = u32::MAX;

/// Where a process's interpreter is, and where it keeps what. Offsets in bytes. All zero: no Python.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Python {
    /// Address of the pointer to the first interpreter.
    pub interpreters: u64,
    /// Bits of a code object's address in a frame that are no part of it.
    pub tag: u64,
    /// Another one for each program that ever ran in a process: code objects of two are never taken for one.
    pub generation: u32,
    /// Fields of an interpreter: the next one, the first thread.
    pub next_interpreter: u32,
    pub threads: u32,
    /// Fields of a thread: the next one, the thread pointer, and how its innermost frame is reached: through this field,
    /// and where it is not [`ABSENT`] through this field of what it points to.
    pub next_thread: u32,
    pub thread_id: u32,
    pub top: u32,
    pub top_through: u32,
    /// Field of a thread: the record of the innermost run of the interpreter's loop, which lies on the C stack in the
    /// loop's frame; and its field for the one before. Or [`ABSENT`].
    pub c_frame: u32,
    pub c_previous: u32,
    /// Bytes of a frame that are read, and its fields.
    pub size: u32,
    pub back: u32,
    pub code: u32,
    pub instruction: u32,
    /// Who owns it, a byte: from 3 on it is no frame of code. Or [`ABSENT`].
    pub owner: u32,
    /// A byte, not 0 in the outermost frame of a run of the loop. Or [`ABSENT`].
    pub entry: u32,
    /// What `instruction` is: a number (an `int`) of units of so many bytes; 0: an address.
    pub unit: u32,
    /// Which frames belong to a run of the loop, see `RUN_*`.
    pub runs: u32,
    /// Fields of a code object: instructions (in it), first line (an `int`), [`WORDS`] that tell it from others.
    pub instructions: u32,
    pub first_line: u32,
    pub identity: u32,
    /// Which of these words is the file's name, and where its characters begin, of which two words are counted in. Or
    /// [`ABSENT`]: the words hold a number that no other code object has.
    pub file_word: u32,
    pub text: u32,
    /// The loop's code: number of its file, and from where to where.
    pub eval_file: u32,
    pub eval: [[u32; 2]; 2],
    pub _pad: u32,
}

/// Words of a code object that do not change while it lives and that tell it from others.
pub const WORDS: usize = 7;

/// Each frame has its own run of the loop, and the C stack does not say where (3.9).
pub const RUN_UNTOLD: u32 = 0;
/// Each frame has its own run, told by `c_frame` (3.10).
pub const RUN_EACH: u32 = 1;
/// A run ends with a frame whose byte `entry` is set, told by `c_frame` (3.11).
pub const RUN_FLAG: u32 = 2;
/// A run ends with a frame that is no code's and lies on the C stack in the loop's frame (from 3.12 on).
pub const RUN_ENTRY: u32 = 3;

/// Owners from here on: the frame is no code's.
pub const OWNER_NO_CODE: u64 = 3;

/// Frames of Python code that one stack has at most.
pub const MOST: usize = 256;

/// The second word of a frame: offset of the instruction in the code (-1 or less: not begun), and what tells the code
/// object from another one that is at its address later.
#[inline(always)]
#[must_use]
pub const fn at(offset: i32, identity: u32) -> u64 {
    offset as u32 as u64 | (identity as u64) << 32
}

/// What [`at`] was made of.
#[must_use]
pub const fn parts(at: u64) -> (i32, u32) {
    (at as u32 as i32, (at >> 32) as u32)
}

/// The first word of a frame.
#[inline(always)]
#[must_use]
pub const fn code(address: u64) -> u64 {
    (FILE as u64) << 48 | address & FRAME_ADDRESS
}

/// Is this the first word of a Python frame? (No file has its number.)
#[inline(always)]
#[must_use]
pub const fn is_code(frame: u64) -> bool {
    frame >> 48 == FILE as u64
}

/// Of a code object's words, its first line and the first characters of its file's name.
#[inline(always)]
#[must_use]
pub const fn identity(words: &[u64; WORDS], first_line: u32, text: [u64; 2]) -> u32 {
    let mut hash = mix(mix(first_line as u64, text[0]), text[1]);
    let mut number = 0;
    while number < WORDS {
        hash = mix(hash, words[number]);
        number += 1;
    }
    (hash >> 32) as u32
}

const _: () = assert!(size_of::<Python>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_what_they_are_given() {
        assert!(is_code(code(0x7fff_1234_5678)) && !is_code(crate::unwind::frame(4095, 0x7fff_1234_5678)));
        for parted in [(0, 0), (-2, u32::MAX), (i32::MAX, 7)] {
            assert_eq!(parts(at(parted.0, parted.1)), parted);
        }
        let words = [1, 2, 3, 4, 5, 6, 7];
        assert_ne!(identity(&words, 4, [0; 2]), identity(&words, 5, [0; 2]));
        assert_ne!(identity(&words, 4, [0; 2]), identity(&words, 4, [0, 1]));
        assert_ne!(identity(&words, 4, [0; 2]), identity(&[1, 2, 3, 4, 5, 7, 6], 4, [0; 2]));
    }
}
