//! The events every stage understands: what a source (ring buffer, recording, generator) hands to the ledger.
//!
//! An event is a fact with a time, a process and a thread. Facts come from probes (something happened) or from
//! looking at the process from outside (an *observation*: something was seen). Both travel in one stream, in order
//! of time, so that a recording holds all that a report needs.

mod gpu;

use std::sync::Arc;

pub use gpu::{DeviceIndex, DeviceName, Gpu, GpuKind, GpuSpace, GpuTaken, PoolRole};
use serde::{Deserialize, Serialize};

/// Address in the traced process.
pub type Addr = u64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Boot clock, nanoseconds.
    pub at: u64,
    pub pid: u32,
    pub tid: u32,
    /// Where in the program it happened, see [`Body::Stack`].
    #[serde(default)]
    pub stack: Option<StackId>,
    pub body: Body,
}

/// Number of a stack: the same for the same frames, in every process.
pub type StackId = std::num::NonZeroU64;

impl Event {
    /// An event without a stack.
    #[must_use]
    pub const fn of(at: u64, pid: u32, tid: u32, body: Body) -> Self {
        Self { at, pid, tid, stack: None, body }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A chunk left a BFC pool for its user.
    ChunkAlloc {
        pool: Addr,
        addr: Addr,
        requested: u64,
        bytes: u64,
        origin: Origin,
    },
    /// A chunk came back to its pool.
    ChunkFree {
        pool: Addr,
        addr: Addr,
    },
    /// TensorFlow's aligned allocator returned a block of the C heap.
    HeapAlloc {
        addr: Addr,
        bytes: u64,
        origin: Origin,
    },
    HeapFree {
        addr: Addr,
    },

    /// A GPU's driver did something.
    Gpu(Gpu),

    /// A mapping was made (what was there before is gone). `file`: it shows a file, `exec`: its bytes can run.
    Map {
        start: Addr,
        len: u64,
        prot: u32,
        flags: u32,
        file: bool,
    },
    Unmap {
        start: Addr,
        len: u64,
    },
    /// A mapping was moved, grown or shrunk. `keep_old`: `MREMAP_DONTUNMAP`. The new place counts from the event's time
    /// (the call's return), the old one is free from `took` nanoseconds before (its beginning): another thread may have
    /// got it meanwhile.
    Remap {
        old_start: Addr,
        old_len: u64,
        start: Addr,
        len: u64,
        keep_old: bool,
        took: u32,
    },
    /// The program break is now at `end`.
    Brk {
        end: Addr,
    },
    /// `madvise`: pages given back or marked, the mapping stays.
    Advise {
        start: Addr,
        len: u64,
        advice: i32,
    },

    /// `pid` made the process `child`. `shares_memory`: vfork, the child has no memory of its own before it execs.
    Fork {
        child: u32,
        shares_memory: bool,
    },
    Exec,
    ThreadExit,
    /// The process is gone.
    Ended {
        status: Option<ExitStatus>,
    },

    /// A TensorFlow call of the catalogue was entered. `text` is the call's text argument where it has one.
    Enter {
        call: Call,
        args: [u64; 6],
        text: Option<Arc<str>>,
    },
    Leave {
        call: Call,
        ret: u64,
    },
    /// The name behind [`Origin::op`]. Holds for all processes.
    OpName {
        op: u64,
        name: Arc<str>,
    },

    /// The frames behind a stack's number. Holds for all processes.
    Stack(Arc<Stack>),
    /// A file that frames are in. Holds for all processes.
    CodeFile(Arc<CodeFile>),
    /// The Python code behind the number in a frame. Holds for all processes.
    PythonPlace(Arc<PythonPlace>),

    /// Who a traced process is. `attached`: it was running before the trace began.
    Process(Arc<ProcessInfo>),
    /// A library with probes is mapped in the process.
    Library(Arc<LibraryInfo>),
    /// The C heap of the process at the moment of the [`Self::Snapshot`] that follows.
    Heap(HeapSeen),
    /// Who holds tensors and tables of the process at the moment of the [`Self::Snapshot`] that follows.
    Holders(Arc<[Holder]>),
    /// The process as seen from outside at this moment.
    Snapshot(Arc<Snapshot>),
    /// Something was lost since the trace began (running total for this kind).
    Lost {
        what: Arc<str>,
        count: u64,
    },
    /// From here on no event tells of mappings: they are known from looks alone. Holds for all processes.
    Polled,
    /// Records of this process that were lost: running totals of what they told of.
    Missed {
        what: Missed,
        total: MissedTotal,
    },
    /// The trace begins (first event) or ends (last event); `pid` is 0.
    TraceStart,
    TraceEnd,

    /// The user set a boundary by hand.
    Mark {
        label: Arc<str>,
    },
    /// The name behind the number of a symbol that the user named as a boundary. Holds for all processes.
    UserSymbol {
        number: u16,
        name: Arc<str>,
        /// It never returns: its entry is the boundary.
        entry_only: bool,
    },
    /// Such a function was entered.
    UserEnter {
        number: u16,
    },
    UserLeave {
        number: u16,
    },
}

/// The functions that a thread was in, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    pub id: StackId,
    /// As in [`tfmem_common::unwind::frame`]; one of Python code is [`tfmem_common::python::code`] of the number of its
    /// place.
    pub frames: Vec<u64>,
    /// Why there are no more, see [`tfmem_common::unwind::end`].
    pub end: u32,
}

/// A file that was mapped as code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeFile {
    /// Its number in frames.
    pub file: u32,
    pub path: String,
    pub build_id: Option<String>,
    /// Its executable segments: place in the file, address, size.
    pub code: Vec<(u64, u64, u64)>,
}

/// A place in Python code by its number in frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonPlace {
    pub number: u32,
    pub code: PythonCode,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PythonCode {
    Known {
        file: String,
        /// Qualified from Python 3.11 on (`Trainer.fit`).
        function: String,
        /// `None`: the instruction has no line.
        line: Option<u32>,
    },
    /// The code object was freed before it was read.
    Gone { address: Addr },
    /// It could not be read: the process had ended, or its memory made no sense.
    Unreadable { address: Addr },
}

/// Who allocated, by TensorFlow's own thread-local annotation. `op` 0: nobody said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Key of the op's name, see [`Body::OpName`].
    pub op: u64,
    pub step: i64,
    /// First bytes of `output`, `temp`, `persist`, `dynamic` …; zero-padded.
    pub region: [u8; 8],
    pub dtype: i32,
}

/// What lost records told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Missed {
    ChunkTaken,
    ChunkGivenBack,
    HeapTaken,
    HeapGivenBack,
    /// A mapping made, moved or undone.
    Mapping,
    /// A call of the catalogue entered or left.
    Call,
    /// Memory of a GPU taken or given back.
    Gpu,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedTotal {
    pub records: u64,
    /// Bytes of the blocks they told of, without those of unknown size.
    pub bytes: u64,
    /// Of the records, those whose block's size is not known.
    pub unsized_records: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// TensorFlow calls that open, close or use something. The catalogue says which symbols they are and which
/// argument is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Call {
    /// `TF_NewSession`; returns the handle
    NewSession,
    /// `TF_LoadSessionFromSavedModel`; returns the handle; text: export directory
    LoadSavedModel,
    /// `TF_CloseSession(session)`
    CloseSession,
    /// `TF_DeleteSession(session)`
    DeleteSession,
    /// `TF_SessionRun(session, …)`
    SessionRun,
    /// `DirectSession::DirectSession`: args[0] = this
    DirectSessionNew,
    /// `DirectSession::Close`: args[0] = this
    DirectSessionClose,
    /// `DirectSession::~DirectSession`: args[0] = this
    DirectSessionDestroy,
    /// `DirectSession::RunInternal(this, step_id, …)`
    DirectSessionStep,
    /// `TF_NewGraph`; returns the handle
    NewGraph,
    /// `TF_DeleteGraph(graph)`
    DeleteGraph,
    /// `TFE_NewContext`; returns the handle
    NewContext,
    /// `TFE_DeleteContext(context)`
    DeleteContext,
    /// `TFE_ContextClearCaches(context)`
    ClearCaches,
    /// `TFE_ContextAddFunction(context, function)` and `TFE_ContextAddFunctionDef(context, …)`
    AddFunction,
    /// `TFE_ContextRemoveFunction(context, name)`; text: name
    RemoveFunction,
    /// `BFCAllocator::BFCAllocator(this, sub, limit, name, …)`: args[0] = this, args[2] = limit; text: name
    PoolNew,
    /// `BFCAllocator::~BFCAllocator`: args[0] = this
    PoolDestroy,
    /// `BFCAllocator::Extend(this, …)`: what the thread allocates inside becomes a region; returns whether it worked
    PoolExtend,
    /// `BFCAllocator::DeallocateRegions(this, …)`
    PoolDeallocateRegions,
    /// `GrpcSession::GrpcSession`: args[0] = this
    GrpcSessionNew,
    /// `GrpcSession::Close`: args[0] = this
    GrpcSessionClose,
    /// `GrpcSession::~GrpcSession`: args[0] = this
    GrpcSessionDestroy,
    /// A client names its session to the master, inside a run; text: the session's handle
    RemoteHandle,
    /// `MasterSession::MasterSession`: args[0] = this
    MasterSessionNew,
    /// `MasterSession::Close`: args[0] = this
    MasterSessionClose,
    /// `MasterSession::~MasterSession`: args[0] = this
    MasterSessionDestroy,
    /// `SessionMgr::CreateSession` on a worker; text: the session's handle
    WorkerSessionCreate,
    /// `SessionMgr::DeleteSession` on a worker; text: the session's handle
    WorkerSessionDelete,
    /// `GraphMgr::Register` on a worker; text: the handle of the session whose graph it is
    WorkerGraphNew,
    /// `GraphMgr::Item::~Item` on a worker: args[0] = this; text: the same
    WorkerGraphGone,
    /// `GraphMgr::StartParallelExecutors(this, graph, step, item, …)` on a worker: args[2] = step; text: the same
    WorkerStep,
    /// `TF_NewServer`; returns the handle
    NewServer,
    /// `TF_ServerStop(server)`
    ServerStop,
    /// `TF_DeleteServer(server)`
    DeleteServer,
    /// `GrpcServer::Stop`: args[0] = this
    GrpcServerStop,
    /// `GrpcServer::~GrpcServer`: args[0] = this
    GrpcServerDestroy,
    /// `TF_Reset(options, containers, count, …)`: args[2] = count
    Reset,
    /// `Worker::CleanupAllAsync`: a worker clears containers
    WorkerCleanup,
}

impl Body {
    /// Numbers of the user's own boundary symbols on the wire start here; calls of the catalogue are below.
    pub const FIRST_USER_CALL: u16 = 1000;
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessInfo {
    pub ppid: u32,
    pub comm: String,
    pub cmdline: Vec<String>,
    pub exe: String,
    /// Boot clock, ns.
    pub started_at: u64,
    pub cgroup: Option<String>,
    /// The process was running before the trace began: what it held then has no birth.
    pub attached: bool,
    /// Its place in a distributed job.
    #[serde(default)]
    pub job: Option<Job>,
}

/// A task of a distributed job: `worker`, 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub name: String,
    pub task: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LibraryInfo {
    /// `tensorflow`, `cuda`, … as in the catalogue.
    pub framework: String,
    pub version: Option<String>,
    pub path: String,
    pub build_id: Option<String>,
    /// Probes that went in, and calls of the catalogue that this file has no symbol for.
    pub probes: u32,
    pub missing: Vec<String>,
    /// Of these, the ones without which the report is blind to something: names of the catalogue.
    #[serde(default)]
    pub blind: Vec<String>,
}

/// Among what a library lacks: it was asked for no probe on what allocates.
pub const NOT_FOLLOWED: &str = "allocations (not followed)";

impl LibraryInfo {
    /// Whether its allocations are told of by events.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        !self.missing.iter().any(|missing| missing == NOT_FOLLOWED)
    }
}

/// A process seen from outside: resident bytes, mappings, and which anonymous pages are resident.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub rss_anon: u64,
    pub rss_file: u64,
    pub rss_shmem: u64,
    /// All mappings, in order of address. Empty when only the totals were read.
    pub mappings: Vec<Mapping>,
    /// Resident ranges of private anonymous memory (start, bytes), sorted, disjoint, merged. `None`: not read.
    pub resident: Option<Vec<(Addr, u64)>>,
    /// The process was stopped at its very end when this was taken: it is exact.
    pub at_exit: bool,
}

/// What the C allocator has, told by a walk through its arenas that added up. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapSeen {
    /// Handed out, large blocks with mappings of their own not counted.
    pub in_use: u64,
    /// Freed by the program and kept by the allocator.
    pub free: u64,
    /// Of what is free: resident.
    pub free_resident: u64,
    /// Of that: what `malloc_trim` would give back.
    pub trimmable: u64,
}

/// What holds data of tensors, or of a table: found by following references, in the process' memory, back from the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub kind: HolderKind,
    /// `variable`, `dataset cache`, `Python object`, …
    pub what: String,
    pub class: String,
    pub name: Option<String>,
    /// The container of the resource manager that it is in.
    pub container: Option<String>,
    /// Data that it holds, and in how many buffers or blocks.
    pub bytes: u64,
    pub count: u64,
    /// Where these buffers' data begin.
    pub blocks: Vec<Addr>,
    /// As many references were found as the buffers count: nothing else holds them.
    pub complete: bool,
    /// What its container belongs to.
    #[serde(default)]
    pub scope: Option<Scope>,
}

/// What has a container of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    Eager,
    Session,
    Server,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HolderKind {
    Variable,
    Table,
    /// A dataset, its cache or its iterator.
    Pipeline,
    /// A tensor of eager execution that no Python object was found to hold.
    Handle,
    Python,
    #[default]
    Other,
    /// Traces of one `tf.function`: their definitions; `count` is the traces.
    Function,
    /// A queue, a writer of summaries.
    Resource,
    /// Sessions that are alive: `count`.
    Session,
    /// A pool: `bytes` are free, in `count` regions.
    Pool,
    /// Definitions of nodes that are in no such trace, and buffers that a graph or its executor holds.
    Graph,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    pub start: Addr,
    pub len: u64,
    pub kind: MappingKind,
    pub resident_bytes: u64,
    /// Path of a file, `[stack]`, `[heap]`, … or empty.
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappingKind {
    Anonymous,
    Heap,
    Stack,
    File,
    Shared,
    /// vdso, vvar, vsyscall
    Kernel,
}

impl Snapshot {
    #[must_use]
    pub const fn rss(&self) -> u64 {
        self.rss_anon + self.rss_file + self.rss_shmem
    }
}
