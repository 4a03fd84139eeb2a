//! What is known of the current thread. One place gives a frequent probe all that it needs: the settings of its process,
//! where the thread notes its op, and what it left at the entry of the call that it is in.
//!
//! The place is found by the thread's number alone, without a call into the kernel: after a trap all of the kernel's code
//! is cold, and each further piece of it costs as much as a memory access. It belongs to one thread until that ends; another
//! one that would have the same is kept in a table.
//!
//! What was copied or found out holds for one epoch: whoever changes `PROCESSES` for a process that runs, or sees the
//! memory go that a place was read from, begins the next one.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::map,
    maps::{Array, HashMap},
};
use tfmem_common::config::{EPOCH_BY_KERNEL, EPOCH_BY_LOADER, PLACES_MAY_MOVE, PROCESS_RARE, Process};

use crate::{emit, gate::Current, maps::PROCESSES};

/// Threads of traced processes that came upon a frequent probe, by the last bits of their number. Claimed and released
/// here.
#[map]
static THREADS: Array<Thread> = Array::with_max_entries(PLACES, 0);
const PLACES: u32 = 32_768;

/// Those whose place was taken. Entered here, removed at the thread's end.
#[map]
static MORE_THREADS: HashMap<u64, Thread> = HashMap::with_max_entries(8192, 0);

/// Two counters, see `EPOCH_*`: each has one side that writes it.
#[map]
static EPOCH: Array<u64> = Array::with_max_entries(2, 0);

#[repr(C)]
pub struct Thread {
    /// Whose it is (tgid and tid); 0: nobody's. Only the owner writes here, but for the claims.
    owner: u64,
    claims: u64,
    epoch: Epoch,
    process: Process,
    /// Addresses of its notes, one for each of `Process::annotations`; 0: not known.
    pub notes: [u64; 2],
    /// Which of them told something last.
    pub told: u32,
    /// Where in its list of regions the pool had the last chunk's.
    pub region: u32,
    pub pool: u64,
    /// Requested and allocated bytes of the last chunk that was looked up in its pool.
    pub sizes: [u64; 2],
    /// Hash of the last op's name, which was sent; 0: none.
    pub op: u64,
    pub malloc: Malloc,
    /// At the entry of the system call that it is in: arguments and time.
    pub call: [u64; 6],
    pub in_call: u64,
}

/// The `AlignedMalloc` that the thread is in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Malloc {
    pub bytes: u64,
    /// Stack pointer at entry: an entry seen at or above it means that the old call never returned.
    pub stack: u64,
    /// Overloads call each other: only the outermost is an allocation. 0: in none.
    pub depth: u64,
    /// Number of the stack at its entry.
    pub trace: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Epoch {
    by_kernel: u64,
    by_loader: u64,
}

static NEW: Thread = Thread {
    owner: 0,
    claims: 0,
    // Never the present one: the loader begins with 1.
    epoch: Epoch { by_kernel: 0, by_loader: 0 },
    process: Process::NONE,
    notes: [0; 2],
    told: 0,
    region: 0,
    pool: 0,
    sizes: [0; 2],
    op: 0,
    malloc: Malloc { bytes: 0, stack: 0, depth: 0, trace: 0 },
    call: [0; 6],
    in_call: 0,
};

/// The current thread, when all that its process does is wanted, and what is known of it: nothing when the table is full.
#[inline(always)]
pub fn current() -> Option<(Current, Option<&'static mut Thread>)> {
    let id = bpf_get_current_pid_tgid();
    // Before the settings are read: what changes meanwhile is of a later epoch.
    let epoch = Epoch { by_kernel: *EPOCH.get(EPOCH_BY_KERNEL)?, by_loader: *EPOCH.get(EPOCH_BY_LOADER)? };
    let place = THREADS.get_ptr_mut(id as u32 & (PLACES - 1))?;
    // SAFETY: a valid map value; its fields are read and written as its own thread, or not at all.
    let thread = unsafe { &mut *place };
    if thread.owner == id && thread.epoch == epoch {
        return Some((Current { id, process: thread.process }, Some(thread)));
    }
    // SAFETY: as in `gate::current`.
    let process = *unsafe { PROCESSES.get((id >> 32) as u32) }?;
    if process.flags & PROCESS_RARE != 0 {
        return None;
    }
    let thread = if thread.owner == id { Some(thread) } else { other(id, thread) };
    if let Some(thread) = thread {
        if thread.epoch != epoch {
            thread.process = process;
            (thread.notes[0], thread.notes[1]) = (0, emit::zero());
            thread.epoch = epoch;
        }
        return Some((Current { id, process: thread.process }, Some(thread)));
    }
    Some((Current { id, process }, None))
}

/// The entry of a thread that does not have its place, or not yet.
#[inline(always)]
fn other(id: u64, place: &'static mut Thread) -> Option<&'static mut Thread> {
    if let Some(thread) = MORE_THREADS.get_ptr_mut(id) {
        // It stays there: a call that it is in may be noted.
        // SAFETY: a valid map value, of this thread alone.
        return Some(unsafe { &mut *thread });
    }
    if place.owner == 0 && claim(place) {
        place.epoch = NEW.epoch;
        place.malloc = NEW.malloc;
        (place.op, place.pool, place.in_call) = (0, 0, emit::zero());
        place.told = 0;
        place.owner = id;
        return Some(place);
    }
    let _ = MORE_THREADS.insert(id, &NEW, 0);
    // None when the table is full.
    // SAFETY: as above.
    MORE_THREADS.get_ptr_mut(id).map(|thread| unsafe { &mut *thread })
}

/// Whoever adds first and finds itself alone has it; two that find each other both go elsewhere, and never do two have it.
#[inline(always)]
fn claim(place: &mut Thread) -> bool {
    let claims = &raw mut place.claims;
    // SAFETY: a valid, aligned map value; volatile, as others write it.
    unsafe {
        emit::add(claims, 1);
        if core::ptr::read_volatile(claims) == 1 {
            return true;
        }
        emit::add(claims, u64::MAX);
    }
    false
}

impl Thread {
    /// May what was found out of the process's memory be kept, as whoever unmaps it is seen?
    #[inline(always)]
    pub const fn may_remember(&self) -> bool {
        self.epoch.by_loader & PLACES_MAY_MOVE == 0
    }
}

/// Begins the next epoch.
#[inline(always)]
pub fn next_epoch() {
    if let Some(epoch) = EPOCH.get_ptr_mut(EPOCH_BY_KERNEL) {
        // SAFETY: a valid, aligned map value.
        unsafe { emit::add(epoch, 1) };
    }
}

/// Memory of the process is gone. If a library was in it, nobody has notes in its thread-local data any more.
#[inline(always)]
pub fn unmapped(current: &Current, start: u64, len: u64) {
    let [first, second] = &current.process.annotations;
    let gone = |slot: u64| slot != 0 && slot.wrapping_sub(start) < len;
    if gone(first.module_slot) || gone(second.module_slot) {
        next_epoch();
    }
}

/// The thread ends, or becomes another program's.
#[inline(always)]
pub fn forget(id: u64) {
    if let Some(place) = THREADS.get_ptr_mut(id as u32 & (PLACES - 1)) {
        // SAFETY: a valid map value.
        let place = unsafe { &mut *place };
        if place.owner == id {
            place.owner = 0;
            // SAFETY: as above.
            unsafe { emit::add(&raw mut place.claims, u64::MAX) };
            return;
        }
    }
    // One that came upon no frequent probe is not there.
    let _ = MORE_THREADS.remove(id);
}
