//! Records of the ring buffer.
//!
//! Each record starts with a [`Header`]; `kind` names the record type. Times are nanoseconds on the boot clock
//! (`CLOCK_BOOTTIME`). Process and thread numbers are those of the initial pid namespace. The order in the buffer is
//! nearly the order of time; the loader restores the exact order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{gpu::WORDS, unwind::MOST_WORDS};

/// Raised when a record's meaning changes. The object and the loader come from one build; recordings carry it.
pub const VERSION: u16 = 1;

/// Bytes of an op name that travel; a longer name is cut and counted.
pub const NAME_BYTES: usize = 128;
/// Bytes of a call's text argument that travel (pool names are far shorter).
pub const TEXT_BYTES: usize = 64;

/// Record types. `u16` on the wire.
pub mod kind {
    pub const CHUNK: u16 = 1;
    pub const HEAP_ALLOC: u16 = 2;
    pub const HEAP_FREE: u16 = 3;
    pub const ENTER: u16 = 4;
    pub const ENTER_TEXT: u16 = 5;
    pub const LEAVE: u16 = 6;
    pub const MEMORY: u16 = 7;
    pub const FORK: u16 = 8;
    pub const EXEC: u16 = 9;
    pub const EXIT: u16 = 10;
    pub const NAME: u16 = 11;
    pub const HOLD: u16 = 12;
    pub const STACK: u16 = 13;
    pub const COPY: u16 = 14;
    pub const GPU: u16 = 15;
    /// One more than the last.
    pub const END: u16 = 16;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Header {
    pub kind: u16,
    pub version: u16,
    pub _pad: u32,
    /// Boot clock, ns: when the thing became true (a mapping: when the call returned; an unmapping: when it began).
    pub at: u64,
    pub pid: u32,
    pub tid: u32,
}

/// Who allocated, as TensorFlow's own thread-local annotation says it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Origin {
    /// Hash of the op's name (the name itself travels once, as [`Name`]); 0: none.
    pub op: u64,
    pub step: i64,
    /// First bytes of the region's name: `output`, `temp`, `persist`, …
    pub region: [u8; 8],
    /// TensorFlow's `DataType` number.
    pub dtype: i32,
    pub _pad: u32,
}

/// A chunk taken from a BFC pool or given back to it (`tsl::BFCAllocator::AddTraceMe`; where that is inlined, its
/// callers). The sizes of one that is given back may be 0: not known.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Chunk {
    pub header: Header,
    pub pool: u64,
    pub chunk: u64,
    pub requested: u64,
    pub allocated: u64,
    pub origin: Origin,
    /// 1: taken, 0: given back
    pub taken: u32,
    pub _pad: u32,
    /// Number of the stack, 0: none.
    pub stack: u64,
}

/// A block that `tsl::port::AlignedMalloc` returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct HeapAlloc {
    pub header: Header,
    pub address: u64,
    pub bytes: u64,
    pub origin: Origin,
    /// Number of the stack at the call's entry, 0: none.
    pub stack: u64,
}

/// A block given to `tsl::port::AlignedFree` or `AlignedSizedFree`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct HeapFree {
    pub header: Header,
    pub address: u64,
}

/// A rare call entered: the first six integer arguments.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Enter {
    pub header: Header,
    pub call: u32,
    pub _pad: u32,
    pub args: [u64; 6],
    /// Number of the stack, 0: none.
    pub stack: u64,
}

/// The same with a text argument read along.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct EnterText {
    pub enter: Enter,
    pub text_len: u32,
    pub _pad: u32,
    pub text: [u8; TEXT_BYTES],
}

/// A rare call left.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Leave {
    pub header: Header,
    pub call: u32,
    pub _pad: u32,
    pub ret: u64,
}

/// Calls that change the memory map.
pub mod memory {
    pub const MMAP: u32 = 1;
    pub const MUNMAP: u32 = 2;
    pub const MREMAP: u32 = 3;
    pub const BRK: u32 = 4;
    pub const MADVISE: u32 = 5;
}

/// A successful system call of one of the kinds in [`memory`].
///
/// | call | `start`, `len` | `old_start`, `old_len` | `flags` | `prot` |
/// |---|---|---|---|---|
/// | mmap | what was mapped | – | flags | protection |
/// | munmap | what was unmapped | – | – | – |
/// | mremap | new place | old place | flags | – |
/// | brk | new break, 0 | – | – | – |
/// | madvise | range | – | advice | – |
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Memory {
    pub header: Header,
    pub call: u32,
    pub prot: u32,
    pub start: u64,
    pub len: u64,
    pub old_start: u64,
    pub old_len: u64,
    pub flags: u64,
    /// File descriptor of a mapping, -1 when anonymous.
    pub fd: i32,
    /// Of mremap: how long the call took, ns, at most what fits. The old place is free some time before it returns.
    pub took: u32,
    /// Number of the stack (of calls that make or grow a mapping), 0: none.
    pub stack: u64,
}

/// A process made by a traced one (threads are not sent).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Fork {
    pub header: Header,
    pub child: u32,
    /// 1: the child runs in the parent's memory until it execs (vfork)
    pub shares_memory: u32,
}

/// The process replaced its image (`EXEC`), or one of its threads ended (`EXIT`; the process's last one decides).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Life {
    pub header: Header,
}

/// An op's name, sent before (or shortly after) the first record that carries its hash.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Name {
    pub header: Header,
    pub hash: u64,
    pub len: u32,
    pub _pad: u32,
    pub text: [u8; NAME_BYTES],
}

/// A traced process is stopped at a mapping of code that was not judged yet: the loader must judge the file and let
/// the process go on.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Hold {
    pub header: Header,
    pub start: u64,
    pub ino: u64,
    pub dev: u32,
    pub _pad: u32,
}

/// A stack, sent before (or shortly after) the first record that carries its number. Only as many words travel as it
/// has.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Stack {
    pub header: Header,
    pub id: u64,
    /// Of words.
    pub count: u32,
    /// Why it has no more frames, see [`crate::unwind::end`].
    pub end: u32,
    /// Innermost first, see [`crate::unwind::frame`] and [`crate::python::code`].
    pub frames: [u64; MOST_WORDS + 1],
}

/// A page of the memory of a stack, sent before its [`Stack`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Copy {
    pub header: Header,
    /// Of the stack.
    pub id: u64,
    pub pc: u64,
    pub sp: u64,
    pub bp: u64,
    /// Address of the page.
    pub address: u64,
    pub words: [u64; 512],
}

/// A call of a GPU's driver that succeeded, see [`crate::gpu::Cookie`].
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Gpu {
    pub header: Header,
    pub call: u32,
    /// Bits: result 0, result 1 and the structure could not be read.
    pub unread: u32,
    pub args: [u64; 6],
    pub results: [u64; 2],
    pub structure: [u64; WORDS],
    /// Current on the thread at the call's entry; 0: none, or not known.
    pub context: u64,
    /// Where the call returns to.
    pub caller: u64,
    /// Number of the stack at the call's entry, 0: none.
    pub stack: u64,
}

/// Pages of one stack that are sent.
pub const MOST_PAGES: u64 = 16;

/// Bytes before the frames.
pub const STACK_HEAD: usize = 40;

const _: () = assert!(size_of::<Header>() == 24);
const _: () = assert!(size_of::<Origin>() == 32);
const _: () = assert!(size_of::<Chunk>() == 104);
const _: () = assert!(size_of::<HeapAlloc>() == 80);
const _: () = assert!(size_of::<HeapFree>() == 32);
const _: () = assert!(size_of::<Enter>() == 88);
const _: () = assert!(size_of::<EnterText>() == 160);
const _: () = assert!(size_of::<Leave>() == 40);
const _: () = assert!(size_of::<Memory>() == 88);
const _: () = assert!(size_of::<Fork>() == 32);
const _: () = assert!(size_of::<Life>() == 24);
const _: () = assert!(size_of::<Name>() == 168);
const _: () = assert!(size_of::<Hold>() == 48);
const _: () = assert!(size_of::<Gpu>() == 160);
const _: () = assert!(size_of::<Copy>() == 64 + 4096);
const _: () = assert!(size_of::<Stack>() == STACK_HEAD + 8 * (MOST_WORDS + 1));
const _: () = assert!((kind::END as u32) <= crate::counters::DROPPED_SLOTS);
