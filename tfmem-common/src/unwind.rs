//! What the loader and the BPF unwinder share: rows of unwind tables, places of code in a process, frames.
//!
//! A *row* holds from its address up to the next row's. It says how the caller's registers are found: the canonical
//! frame address (CFA, the stack pointer before the call), the saved frame pointer, the return address (always at
//! CFA − 8, or the row is of a kind that says otherwise). All arithmetic is on 8-byte words, as the ABI keeps the stack.

mod step;

use crate::python::Python;
pub use step::{AT_ENTRY, FRAME_POINTER, For, Registers, step};

/// Words of one stack that travel: one for each native frame, two for each of Python's. The rest is cut and counted.
pub const MOST_WORDS: usize = 1023;

/// A [`Rule`] in 32 bits.
///
/// ```text
/// bits  0..4    kind, see `KIND_*`
/// bit  4        no return address can lie in the row's range (the loader's tables only; not used by BPF)
/// bits 5..16    the saved frame pointer: 0 unchanged, n: at CFA − 8·n; the last two values are special, see `RBP_*`
/// bits 16..32   offset of the CFA in words, signed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub u32);

/// Nothing is known of this code.
pub const KIND_NONE: u32 = 0;
/// CFA = rsp + offset
pub const KIND_RSP: u32 = 1;
/// CFA = rbp + offset
pub const KIND_RBP: u32 = 2;
/// CFA = *(rbp + offset); a function that aligned its stack
pub const KIND_RBP_DEREF: u32 = 3;
/// CFA = rsp + 8, or rsp + 16 once `rip & 15` has reached the offset (in bytes): stubs of the procedure linkage table
pub const KIND_PLT: u32 = 4;
/// All registers are in the signal's frame: the stack pointer at rsp + offset, the pc behind it
pub const KIND_SIGNAL: u32 = 5;
/// The thread's outermost function: nothing called it
pub const KIND_END: u32 = 6;
/// The table says something that is not followed here
pub const KIND_UNSUPPORTED: u32 = 7;
/// CFA = *(rsp + offset) + 8; hand-written code
pub const KIND_RSP_DEREF: u32 = 8;

/// The caller's frame pointer is lost.
pub const RBP_UNDEFINED: u32 = 0x7ff;
/// The caller's frame pointer is where the frame pointer points to.
pub const RBP_AT_RBP: u32 = 0x7fe;

/// In a signal's frame (`struct rt_sigframe`, x86-64 ABI) the saved rbp is this far before the saved rsp, the pc behind it.
pub const SIGNAL_RBP_BEFORE: u64 = 40;
pub const SIGNAL_PC_BEHIND: u64 = 8;

const CALL_FREE: u32 = 1 << 4;

impl Rule {
    pub const NONE: Self = Self(KIND_NONE);
    pub const END: Self = Self(KIND_END);
    pub const UNSUPPORTED: Self = Self(KIND_UNSUPPORTED);

    /// `offset` is in words.
    #[inline(always)]
    #[must_use]
    pub const fn new(kind: u32, rbp: u32, offset: i16) -> Self {
        Self(kind | rbp << 5 | (offset as u16 as u32) << 16)
    }

    #[inline(always)]
    #[must_use]
    pub const fn kind(self) -> u32 {
        self.0 & 15
    }

    #[inline(always)]
    #[must_use]
    pub const fn rbp(self) -> u32 {
        self.0 >> 5 & 0x7ff
    }

    /// Words.
    #[inline(always)]
    #[must_use]
    pub const fn offset(self) -> i16 {
        (self.0 >> 16) as u16 as i16
    }

    /// Does the caller's frame hang on the frame pointer?
    #[inline(always)]
    #[must_use]
    pub const fn by_frame_pointer(self) -> bool {
        matches!(self.kind(), KIND_RBP | KIND_RBP_DEREF)
    }

    #[must_use]
    pub const fn call_free(self) -> bool {
        self.0 & CALL_FREE != 0
    }

    #[must_use]
    pub const fn with_call_free(self, yes: bool) -> Self {
        Self(if yes { self.0 | CALL_FREE } else { self.0 & !CALL_FREE })
    }
}

/// A row as BPF has it: the address (in the file's own address space) in the lower half, the rule in the upper.
#[inline(always)]
#[must_use]
pub const fn row(address: u32, rule: Rule) -> u64 {
    address as u64 | (rule.0 as u64) << 32
}

#[inline(always)]
#[must_use]
pub const fn row_address(row: u64) -> u32 {
    row as u32
}

#[inline(always)]
#[must_use]
pub const fn row_rule(row: u64) -> Rule {
    Rule((row >> 32) as u32)
}

/// A file's code is cut into blocks of equal size, as many as make the search in one short: each has an entry of the
/// index, which says where to search. This is the size (a shift) of the smallest block.
pub const SMALLEST_BLOCK: u32 = 12;
/// Steps of the search in one block: there is at most a row for each byte, and one that began before.
pub const SEARCH_STEPS: u32 = 13;

/// An entry of the index: the number of the last row at or before the block's start, and how many rows may be meant.
#[inline(always)]
#[must_use]
pub const fn block(first: u32, count: u32) -> u64 {
    first as u64 | (count as u64) << 32
}

/// A file's table: which entries of the index are its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Number of the first block's entry.
    pub index: u32,
    /// The first block.
    pub first_block: u32,
    pub blocks: u32,
    /// Size of a block, a shift.
    pub shift: u32,
}

/// A place of code in a process: from `start`, `pages` long, byte `address` of the file `file` begins there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    /// Address, in the file's own address space, of what is at `start`.
    pub address: u32,
    pub pages: u32,
    /// Number of the file; 0: none.
    pub file: u32,
    pub _pad: u32,
}

/// Places of code that a process may have; TensorFlow's have some 300. A power of two.
pub const MOST_RANGES: usize = 1024;
/// Steps of the search in them.
pub const RANGE_STEPS: u32 = 10;

/// The code of one process, in order of address; unused places at the end are zero. And its Python.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    pub count: u32,
    pub _pad: u32,
    pub python: Python,
    pub ranges: [Range; MOST_RANGES],
}

/// A frame: a file's number and an address in the file's own address space, or file 0 and an address of the process. In
/// the caller of another frame it is the address of the last byte of the call, so that it is in the right line.
#[inline(always)]
#[must_use]
pub const fn frame(file: u32, address: u64) -> u64 {
    (file as u64) << 48 | address & FRAME_ADDRESS
}

pub const FRAME_ADDRESS: u64 = (1 << 48) - 1;
/// Files are numbered below this.
pub const MOST_FILES: u32 = crate::python::FILE;

/// A multiply-and-rotate hash (FxHash's step).
#[inline(always)]
#[must_use]
pub const fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// Why a stack has no more frames.
pub mod end {
    /// The thread's outermost function was reached.
    pub const COMPLETE: u32 = 0;
    /// There are more than fit.
    pub const TRUNCATED: u32 = 1;
    /// The stack's memory could not be read there.
    pub const UNREADABLE: u32 = 2;
    /// The table says something that is not followed.
    pub const UNSUPPORTED: u32 = 3;
    /// Code that no file shows (made at run time, or not looked at yet), and the frame pointer leads nowhere.
    pub const UNKNOWN_CODE: u32 = 4;
    /// A file's code of which its tables say nothing, and the frame pointer leads nowhere.
    pub const NO_ROW: u32 = 5;
    /// What was found would lead down the stack or stand still.
    pub const NO_PROGRESS: u32 = 6;
    /// How many there are.
    pub const COUNT: u32 = 7;
}

const _: () = assert!(size_of::<Table>() == 16);
const _: () = assert!(size_of::<Range>() == 24);
const _: () = assert!(1 << RANGE_STEPS == MOST_RANGES);
const _: () = assert!(1 << (SEARCH_STEPS - 1) == 1 << SMALLEST_BLOCK);

#[cfg(feature = "user")]
mod user {
    // SAFETY: `#[repr(C)]`, integers only, padding explicit; any bit pattern is valid.
    unsafe impl aya::Pod for super::Table {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::Ranges {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_what_they_are_given() {
        for (kind, rbp, offset) in [(KIND_RSP, 0, 1), (KIND_RBP, 2, i16::MAX), (KIND_RBP_DEREF, RBP_AT_RBP, -1)] {
            let rule = Rule::new(kind, rbp, offset).with_call_free(true);
            assert_eq!((rule.kind(), rule.rbp(), rule.offset(), rule.call_free()), (kind, rbp, offset, true));
            let packed = row(0xffff_fff0, rule);
            assert_eq!((row_address(packed), row_rule(packed)), (0xffff_fff0, rule));
        }
    }
}
