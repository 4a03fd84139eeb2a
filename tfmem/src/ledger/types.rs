//! What the ledger knows of a process: plain data, filled from events alone.

use std::sync::Arc;

use crate::event::{Addr, ExitStatus, HeapSeen, Holder, LibraryInfo, Origin, ProcessInfo, Snapshot, StackId};
use crate::ledger::distributed::ServerId;

/// Number of a session within its process, from 1, in order of opening.
pub type SessionId = u64;

/// One piece of memory alive in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub layer: BlockLayer,
    pub addr: Addr,
    /// Bytes taken from the layer below (a chunk: the whole chunk).
    pub bytes: u64,
    /// Bytes the user asked for.
    pub requested: u64,
    /// Boot clock, ns.
    pub born: u64,
    pub tid: u32,
    /// The session whose run or opening made it, where that is certain. An opening that failed made no session:
    /// what it left behind keeps a number that no session has.
    pub owner: Option<SessionId>,
    pub origin: Origin,
    /// A chunk's pool; for a heap block that is a region of a pool, that pool.
    pub pool: Option<Addr>,
    /// Where in the program it was taken.
    pub stack: Option<StackId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockLayer {
    /// A chunk inside a BFC pool.
    Chunk,
    /// A block of TensorFlow's aligned allocator. With `pool` set it is a region of that pool.
    Heap,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub id: SessionId,
    /// Address of the C API's handle (`TF_Session*`), 0 when opened through C++ alone.
    pub handle: Addr,
    /// Address of the `DirectSession` or `GrpcSession` under it, 0 when not seen.
    pub direct: Addr,
    /// A `GrpcSession`: it works on a server, perhaps in another process.
    pub remote: bool,
    /// Its handle there, known from its first run on: the same text in every process that works for it.
    pub remote_handle: Option<Arc<str>>,
    /// Thread that opened it.
    pub tid: u32,
    pub opened: u64,
    /// When its close began and ended. `closed` is set when the close call returned.
    pub closing: Option<u64>,
    pub closed: Option<u64>,
    /// When its delete began and ended.
    pub deleting: Option<u64>,
    pub deleted: Option<u64>,
    /// Opened by `TF_LoadSessionFromSavedModel`: the export directory.
    pub saved_model: Option<Arc<str>>,
    /// Runs begun, and runs under way now.
    pub runs: u64,
    pub running: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub addr: Addr,
    pub name: Option<Arc<str>>,
    pub limit: u64,
    pub opened: u64,
    /// Regions alive, by start.
    pub regions: Vec<Region>,
    /// Chunks alive, and their bytes (whole chunks).
    pub chunks: u64,
    pub in_use: u64,
    pub peak_in_use: u64,
    /// Chunks handed out since the pool began, their bytes, and how often a region was added.
    pub handed_out: u64,
    pub handed_out_bytes: u64,
    pub extended: u64,
    /// The pool was there before its constructor could be seen: its regions may be incomplete.
    pub seeded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub start: Addr,
    pub bytes: u64,
    pub born: u64,
}

/// Opened and closed handles of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleCount {
    pub opened: u64,
    pub closed: u64,
}

/// Sessions of a process since it was first seen; an `exec` drops the sessions, not these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    pub opened: u64,
    pub closed: u64,
    pub deleted: u64,
}

/// Sums over what is alive now. Layers nest: never add them up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub chunk_bytes: u64,
    pub chunks: u64,
    pub region_bytes: u64,
    pub regions: u64,
    /// Heap blocks that are not regions of a pool.
    pub heap_bytes: u64,
    pub heap_blocks: u64,
    pub mapping_bytes: u64,
}

/// A figure that is not exact because records were lost: the truth lies between the two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// `None`: not known.
    pub at_least: Option<u64>,
    pub at_most: Option<u64>,
    /// Allocations that were lost (of mappings: records of any kind).
    pub missed: u64,
    /// Blocks that may be gone: frees that were lost, less those whose block was found out.
    pub stale: u64,
}

/// What an event changed that a boundary may hang on. `apply` returns these in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    SessionOpened(SessionId),
    /// The close call began: what is alive now is what the close may give back.
    SessionClosing(SessionId),
    /// The close call returned (or the delete that closed it on the way).
    SessionClosed(SessionId),
    SessionDeleting(SessionId),
    SessionDeleted(SessionId),
    ContextDeleting(Addr),
    ContextDeleted(Addr),
    CachesClearing(Addr),
    CachesCleared(Addr),
    /// A client's session ends on this worker: its delete began and returned, or its last graph goes and went.
    WorkerSessionDeleting(SessionId),
    WorkerSessionDeleted(SessionId),
    /// It was heard of again: it had not ended.
    WorkerSessionReopened(SessionId),
    ServerStopping(ServerId),
    ServerStopped(ServerId),
    ProcessEnded,
    Snapshot,
    TraceEnd,
}

/// When a process ended and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub at: u64,
    pub status: Option<ExitStatus>,
}

/// Who the process is, and what was seen of it from outside.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub info: Option<Arc<ProcessInfo>>,
    pub libraries: Vec<Arc<LibraryInfo>>,
    /// The last observation and its time.
    pub snapshot: Option<(u64, Arc<Snapshot>)>,
    /// The last walk through its heap and its time.
    pub heap: Option<(u64, HeapSeen)>,
    /// Who held what when somebody looked last, and that time.
    pub holders: Option<(u64, Arc<[Holder]>)>,
    /// The same when the trace of a running process began.
    pub held_before: Option<(u64, Arc<[Holder]>)>,
}

/// What did not add up. Each is printed; none is ever silently repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    /// A chunk or block was given back that the ledger does not know.
    pub unpaired_frees: u64,
    /// The same, where it is to be expected: the process or the pool was there before the trace.
    pub expected_frees: u64,
    /// The same in a process that forked and has not called `exec`: memory copied from its parent.
    pub inherited_frees: u64,
    /// Chunks that were alive when their pool or their region went away.
    pub orphaned_chunks: u64,
    /// An address was handed out that was still alive: its end was lost.
    pub reused_alive: u64,
    /// After a loss, blocks that lay where nothing is mapped any more, or under a younger block.
    pub found_gone: u64,
    /// A call returned that was not entered, or the other way round.
    pub unpaired_calls: u64,
    /// A close, delete or run of a handle whose opening was not seen.
    pub unknown_handles: u64,
    /// The pid was given to another process before the end of this one was seen.
    pub lost_ends: u64,
    /// Bytes of mappings that `/proc` shows and the ledger does not, or the reverse, at the last comparison.
    pub mapping_drift_bytes: u64,
    /// Bytes of mappings that looks showed, and that no event tells of by the way the memory map is followed. A sum.
    pub mapping_untold_bytes: u64,
}
