//! Per-CPU counters kept in the kernel: every event that could not be sent, and why.

/// What was lost or could not be read. One slot of the `COUNTERS` map each; the loader sums over CPUs.
/// `DROPPED_*` are indexed by the event's kind so that a report can say *what* is missing.
pub const DROPPED_BASE: u32 = 0;
/// Kinds are below this (see [`crate::wire::Kind`]).
pub const DROPPED_SLOTS: u32 = 16;
/// An op annotation was there but its memory could not be read.
pub const ANNOTATION_UNREADABLE: u32 = 16;
/// A text argument (pool name) could not be read.
pub const TEXT_UNREADABLE: u32 = 17;
/// The table of calls in flight was full: a call's return was seen without its entry.
pub const INFLIGHT_FULL: u32 = 18;
/// A call's return was seen without its entry (the probe went in while it ran).
pub const RETURN_WITHOUT_ENTRY: u32 = 19;
/// An entry was found left over from a call that never returned (longjmp, thread killed).
pub const STALE_ENTRY: u32 = 20;
/// The table of traced processes was full: a child is not traced.
pub const PROCESSES_FULL: u32 = 21;
/// The hold signal could not be sent: a library ran before its probes were in.
pub const HOLD_FAILED: u32 = 22;
/// An op name was longer than the wire carries and was cut.
pub const NAME_TRUNCATED: u32 = 23;
/// A process was not held because the loader has not been heard of for a while (it hangs, or is dead).
pub const HOLD_LAPSED: u32 = 24;
/// A chunk was taken from a pool whose own record of it could not be read.
pub const CHUNK_UNREADABLE: u32 = 25;
/// A lost record could not be counted with its process: the table of those was full.
pub const LOST_WITHOUT_PROCESS: u32 = 26;
/// What a call of a GPU's driver had written could not be read.
pub const RESULT_UNREADABLE: u32 = 27;
/// A stack was not taken, as all room on this CPU was taken by programs that were preempted.
pub const UNWIND_BUSY: u32 = 48;
/// A frame of code of no known file: a step by the frame pointer was tried.
pub const UNWIND_UNKNOWN_CODE: u32 = 49;
/// A frame of a file whose table does not know the code: the same.
pub const UNWIND_NO_ROW: u32 = 50;
/// The table of replaced return addresses did not take one.
pub const RETURNS_FULL: u32 = 51;
/// A thread runs the interpreter's loop, and its Python frames were not found.
pub const PYTHON_THREAD_UNKNOWN: u32 = 52;
/// A Python frame could not be read: the ones outside of it are missing.
pub const PYTHON_UNREADABLE: u32 = 53;
/// A stack has more Python frames than fit.
pub const PYTHON_TRUNCATED: u32 = 54;
/// Python frames of which no native frame told where they run: they stand outside of all native ones.
pub const PYTHON_UNPLACED: u32 = 55;
/// Stacks that end before the thread's outermost function, by reason (see [`crate::unwind::end`]).
pub const UNWIND_END_BASE: u32 = 56;
/// How many slots there are.
pub const SLOTS: u32 = 64;
