//! Every map, with who writes it and who reads it.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use tfmem_common::{
    config::{FileId, KernelLayout, Process},
    counters,
    lost::{Key, Lost},
};

pub use tfmem_common::config::{STACKS_COPY, STACKS_FP, STACKS_OFF};

/// Events to the loader. The loader sets the real size at load (`--buffer`); a power of two, multiple of a page.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(16 << 20, 0);

/// Traced processes by tgid. The loader inserts the first ones, `task_newtask` their children (in the kernel, before
/// the child runs); the loader removes them when they are gone.
#[map]
pub static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(16_384, 0);

/// See `tfmem_common::counters`. Written here, summed over CPUs by the loader.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(counters::SLOTS, 0);

/// What was lost of whom. Written here, read by the loader, which also takes out processes that are gone.
#[map]
pub static LOST: HashMap<Key, Lost> = HashMap::with_max_entries(8192, 0);

/// Files whose code the loader has judged (probes are in, or not needed). Written by the loader.
#[map]
pub static FILES_JUDGED: HashMap<FileId, u8> = HashMap::with_max_entries(65_536, 0);

/// Boot time up to which processes may be held. The loader moves it on while it lives: links outlive a killed loader by
/// as long as the kernel takes to close them, and nobody would let a process go on that is held then.
#[map]
pub static LEASE: Array<u64> = Array::with_max_entries(1, 0);

/// Op names already sent. LRU: an evicted name is simply sent again.
#[map]
pub static NAMES_SENT: LruHashMap<u64, u8> = LruHashMap::with_max_entries(65_536, 0);

/// One entry for each thread inside a followed function of the kernel. Entered and removed here.
#[map]
pub static SYSCALLS: HashMap<u64, [u64; 6]> = HashMap::with_max_entries(32_768, 0);

/// One entry for each thread inside a call of a GPU's driver. Entered and removed here.
#[map]
pub static GPU_CALLS: HashMap<u64, GpuInFlight> = HashMap::with_max_entries(8192, 0);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GpuInFlight {
    pub args: [u64; 6],
    pub at: u64,
    /// Stack pointer at entry: an entry seen at or above it means that the old call never returned. Calls of the driver
    /// may call each other, and only the outermost counts.
    pub stack: u64,
    pub depth: u64,
    pub trace: u64,
    pub caller: u64,
    pub context: u64,
}

/// The GPU context that is current on a thread, and how many it has under that one. LRU: threads that end are not told.
#[map]
pub static GPU_CURRENT: LruHashMap<u64, GpuCurrent> = LruHashMap::with_max_entries(16_384, 0);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GpuCurrent {
    pub context: u64,
    pub below: u64,
}

/// The contexts under the current one.
#[map]
pub static GPU_BELOW: LruHashMap<GpuBelow, u64> = LruHashMap::with_max_entries(16_384, 0);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GpuBelow {
    pub thread: u64,
    pub place: u64,
}

/// Offsets in the running kernel's structures, set by the loader before load.
#[unsafe(no_mangle)]
static KERNEL: KernelLayout = KernelLayout { fsbase: 0, files: 0, fdt: 0, fd: 0, inode: 0, ino: 0, sb: 0, dev: 0 };

#[inline(always)]
pub fn kernel() -> KernelLayout {
    // SAFETY: reads a static; volatile because the loader overwrites it after the compiler has seen its zeroes.
    unsafe { core::ptr::read_volatile(&raw const KERNEL) }
}

/// Bytes waiting in the buffer from which on it takes rare records only, set by the loader before load.
#[unsafe(no_mangle)]
static CROWDED: u64 = u64::MAX;

#[inline(always)]
pub fn crowded() -> u64 {
    // SAFETY: as for `KERNEL`.
    unsafe { core::ptr::read_volatile(&raw const CROWDED) }
}

/// The loader is woken each time the buffer has filled by so much, a power of two: it may sleep long when nothing
/// happens, and loses nothing when suddenly a lot does.
#[unsafe(no_mangle)]
static WAKE_EVERY: u64 = 1 << 20;

#[inline(always)]
pub fn wake_every() -> u64 {
    // SAFETY: as for `KERNEL`.
    unsafe { core::ptr::read_volatile(&raw const WAKE_EVERY) }
}

/// Non-zero with `--debug-bpf`: the programs then log through aya-log.
#[unsafe(no_mangle)]
static DEBUG: u32 = 0;

#[inline(always)]
pub fn debug() -> bool {
    // SAFETY: as for `KERNEL`.
    unsafe { core::ptr::read_volatile(&raw const DEBUG) != 0 }
}

/// How stacks are taken, see `tfmem_common::config::STACKS_*`. The verifier drops what the mode never reaches.
#[unsafe(no_mangle)]
static STACKS: u32 = STACKS_OFF;

#[inline(always)]
pub fn stacks() -> u32 {
    // SAFETY: as for `KERNEL`.
    unsafe { core::ptr::read_volatile(&raw const STACKS) }
}
