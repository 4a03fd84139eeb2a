//! What the unwinder knows, and where it works. With stacks off the loader makes all of these as small as they can be.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, LruHashMap, PerCpuArray},
};
use tfmem_common::{
    python::MOST as MOST_PYTHON,
    unwind::{Range, Ranges, Registers, Table},
    wire::Stack,
};

/// Rows of all files' tables. Written by the loader through a shared mapping, before the file's number is used anywhere.
#[map]
pub static UNWIND_ROWS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The index over them, by blocks of code. Written like the rows.
#[map]
pub static UNWIND_BLOCKS: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Each file's part of the index, by the file's number; number 0 stays empty. Written by the loader.
#[map]
pub static UNWIND_FILES: Array<Table> = Array::with_max_entries(1, 0);

/// Places of code of processes. The loader fills one that nobody uses and then puts its number into `PROCESSES`.
#[map]
pub static UNWIND_RANGES: Array<Ranges> = Array::with_max_entries(1, 0);

/// Where the stack that is being walked is kept: several for each CPU, as a program may be preempted by another one. Each
/// is used by one program at a time (`busy`).
#[map]
pub static UNWIND_SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(SCRATCHES, 0);

/// Stacks already sent. LRU: an evicted stack is simply sent again.
#[map]
pub static STACKS_SENT: LruHashMap<u64, u8> = LruHashMap::with_max_entries(1, 0);

/// The last walks, with every word that they read: where all of these are the same again, so is the stack. LRU.
#[map]
pub static WALKS: LruHashMap<WalkKey, Walk> = LruHashMap::with_max_entries(1, 0);

/// Return addresses that a return probe replaces by its own: by process and place on the stack. Entered where a probed
/// function is, before its return address is replaced, removed when it has returned. LRU: some never do.
#[map]
pub static RETURNS: LruHashMap<ReturnPlace, u64> = LruHashMap::with_max_entries(1, 0);

/// When the loader was woken last to read the names of Python's frames, which do not wait.
#[map]
pub static PYTHON_WOKEN: Array<u64> = Array::with_max_entries(1, 0);

/// How deep programs may preempt each other on one CPU.
pub const SCRATCHES: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReturnPlace {
    pub stack: u64,
    pub pid: u64,
}

pub const PAGE_WORDS: usize = 512;

/// From where a stack was walked. `ranges` is another number when the process's code has changed.
#[repr(C)]
pub struct WalkKey {
    pub pc: u64,
    pub sp: u64,
    pub tid: u32,
    pub ranges: u32,
}

/// Words that a walk may read: two for each frame.
pub const WALK_WORDS: usize = 256;

#[repr(C)]
pub struct Walk {
    /// Number of the stack.
    pub id: u64,
    pub count: u32,
    /// Not 0: it cannot be told again by these words alone.
    pub unsure: u32,
    /// Behind the last word: distance from the stack pointer, in words.
    pub reach: u64,
    /// The frame pointer, and not 0 when the walk hung on it.
    pub bp: u64,
    pub by_bp: u64,
    /// Hash of Python's frames; 0: there were none, and there are none while the native ones are the same.
    pub python: u64,
    /// Where each word is: distance from the stack pointer, in words.
    pub places: [u16; WALK_WORDS],
    pub words: [u64; WALK_WORDS],
}

#[repr(C)]
pub struct Scratch {
    /// How many programs want it; one that finds itself not alone takes another.
    pub busy: u64,
    pub registers: Registers,
    /// Of the frames so far.
    pub hash: u64,
    /// Where the last frame's code is; the next one's is often there too.
    pub range: Range,
    /// Number of the process's places of code.
    pub ranges: u32,
    pub pid: u32,
    /// Bits, see `super::step`.
    pub state: u32,
    pub _pad: u32,
    /// Address of the page that `page` is a copy of; 0: none.
    pub page_at: u64,
    pub page: [u64; PAGE_WORDS],
    pub stack: Stack,
    /// From where it is walked.
    pub key: WalkKey,
    /// Where the frame pointer was read; 0: it is the register's still, or is remembered already.
    pub bp_at: u64,
    /// The frame pointer is the register's still.
    pub bp_first: u64,
    pub walk: Walk,
    /// Hash of Python's frames of the walk that was remembered.
    pub remembered: u64,
    pub python: Python,
}

/// Words of Python frames: two for each.
pub const PYTHON_WORDS: usize = 2 * MOST_PYTHON;

/// Python's frames of the thread, innermost first.
#[repr(C)]
pub struct Python {
    /// The next one to be read.
    pub frame: u64,
    /// The record of the run of the interpreter's loop that it is in.
    pub c_frame: u64,
    pub hash: u64,
    pub count: u32,
    /// How many are in the stack.
    pub placed: u32,
    /// Number of the run that the next one is in.
    pub run: u32,
    /// Not 0: one is due, as its run was passed (where nothing else tells).
    pub owed: u32,
    pub untold: u32,
    /// Not 0: a run of the loop was passed.
    pub loops: u32,
    /// The loop's code.
    pub eval_file: u32,
    pub _pad: u32,
    pub eval: [[u32; 2]; 2],
    /// The frame that is being read.
    pub read: [u64; 16],
    /// And words of its code object.
    pub object: [u64; 8],
    pub words: [u64; PYTHON_WORDS],
    /// The run of each, and where each run's frame is on the C stack.
    pub runs: [u8; MOST_PYTHON],
    pub places: [u64; MOST_PYTHON],
}
