//! The report as data: `"schema": "tfmem.report/1"`. What the text shows and what the JSON holds are this.
//!
//! All sizes are bytes. Fields that end in `_at` are RFC 3339 in UTC; `timeline.edges` and durations say their unit.
//! A field that is `null` is *not known*, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod device;
mod growth;
mod history;
pub use device::{Device, DeviceBands, StreamPool};
pub use growth::{Growth, Prediction};
pub use history::{
    EndedSession, HandleBound, HandleClass, HandleCount, Handles, OpenSession, Sessions, Timeline, TimelineBand,
    TimelineDevice,
};

pub const SCHEMA: &str = "tfmem.report/1";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub schema: String,
    pub tfmem: Tfmem,
    pub host: Host,
    /// What the kernel and the privileges allowed (as `tfmem doctor` found it).
    pub capabilities: BTreeMap<String, String>,
    pub options: ReportOptions,
    pub started_at: String,
    /// The same moment on the boot clock, ns: what ties the timelines' edges to dates.
    #[serde(default)]
    pub started_ns: u64,
    pub ended_at: String,
    pub processes: Vec<Process>,
    /// Stacks by id; an entry's frames go from the innermost outwards.
    pub stacks: BTreeMap<String, Vec<Frame>>,
    /// Every kind of loss with its count; a kind that never happened is listed with 0.
    pub losses: BTreeMap<String, u64>,
    pub coverage: Coverage,
    /// Events that reached the ledger.
    pub events: u64,
    /// What the trace itself cost.
    pub cost: Option<Cost>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tfmem {
    pub version: String,
}

/// What the analysis was asked to do.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ReportOptions {
    pub grace_ms: u64,
    pub min_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub kernel: String,
    pub boot_id: String,
    pub hostname: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub cpu_ms: u64,
    pub peak_rss_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Resident bytes of all processes at their last observation.
    pub bytes_seen: u64,
    /// Of these, bytes that lie in something the ledger or the memory map names.
    pub bytes_explained: u64,
    /// Absent: no stacks were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackCoverage>,
}

/// Bytes of all chunks and blocks that were handed out, those with a stack, and those whose stack reaches the thread's
/// outermost function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackCoverage {
    pub bytes: u64,
    pub with_stack: u64,
    pub complete: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub ppid: u32,
    pub comm: String,
    pub cmdline: Vec<String>,
    pub exe: String,
    pub started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<String>,
    /// `exit 0`, `signal 9`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its place in a distributed job, from `TF_CONFIG` or from `--job_name` and `--task_index`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// The process ran before the trace began.
    pub attached: bool,
    /// It runs in a copy of its parent's memory (fork without exec): what it inherited is counted with the parent.
    pub forked: bool,
    /// From the start of the process (attached: of the trace) to its end (or the trace's).
    pub seen_ms: u64,
    pub frameworks: Vec<Framework>,
    pub now: Now,
    pub handles: Handles,
    pub timeline: Timeline,
    pub boundaries: Vec<Boundary>,
    /// Boundaries left out between the first and the last ones, to keep the report readable.
    pub boundaries_omitted: u64,
    pub verdicts: Vec<Verdict>,
    /// What a close or a delete gave back, in sentences with their figures.
    pub released: Vec<Released>,
    /// Over several boundaries of one kind, what grows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
    /// What verdicts said of the future, and what came of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predictions: Vec<Prediction>,
}

/// A task of a distributed job: `worker`, 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub name: String,
    pub task: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Framework {
    pub name: String,
    pub version: Option<String>,
    pub library: String,
    pub build_id: Option<String>,
    /// Probes in this file.
    pub probes: u64,
    /// Calls that this kind of library must have and this file has no symbol for: what they would tell is not seen.
    pub blind: Vec<String>,
}

/// The last state seen (for a process that ended: its state at the end).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Now {
    /// When `rss_bytes` was read; `null`: never.
    pub observed_at: Option<String>,
    pub rss_bytes: Option<u64>,
    pub layers: Layers,
    /// Which of `layers` are not exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Bound>,
    pub devices: Vec<Device>,
}

/// Bytes by layer. Layers nest: never add them up. A layer nobody could look at is `null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    pub device: Option<u64>,
    pub pinned: Option<u64>,
    pub managed: Option<u64>,
    pub pool_region: Option<u64>,
    pub pool_chunk: Option<u64>,
    pub mapping: Option<u64>,
    /// Blocks of TensorFlow's aligned allocator that are not regions of a pool.
    pub heap: Option<u64>,
}

/// A layer whose bytes are not exact, because records were lost: the truth lies between the two, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub layer: Layer,
    /// `null`: not known.
    pub at_least_bytes: Option<u64>,
    pub at_most_bytes: Option<u64>,
    /// Allocations that were lost; of mappings, records of any kind.
    pub lost_allocations: u64,
    /// Blocks that are counted and may be gone, because that many frees were lost.
    pub maybe_freed: u64,
}

/// Resident bytes in disjoint bands: what is known adds up to `rss_bytes`. `null`: not known, its bytes are in
/// `mappings_other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bands {
    pub pool_in_use: Option<u64>,
    pub pool_free: Option<u64>,
    pub heap_in_use: Option<u64>,
    pub heap_free: Option<u64>,
    pub mappings_other: Option<u64>,
    pub files: Option<u64>,
    pub unexplained: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundaryKind {
    SessionClosed,
    SessionDeleted,
    WorkerSessionDeleted,
    ContextDeleted,
    CachesCleared,
    ServerStopped,
    ProcessExit,
    Mark,
    Symbol,
    /// The trace ended while the process ran on.
    TraceEnd,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boundary {
    pub id: u64,
    pub kind: BoundaryKind,
    pub label: String,
    /// The session's handle on its master: boundaries of one session have the same one in every process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// When the span that this boundary ends began.
    pub opened_at: String,
    pub at: String,
    /// When the survivors were taken. At `process_exit` these are what was alive `at` the end, and `after_at` is when
    /// processes left over were looked for.
    pub after_at: String,
    /// Time really waited between `at` and `after_at`, ms (less than asked for when the process ended first).
    pub grace_ms: u64,
    /// When the process's memory was searched for who holds the survivors; absent: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders_at: Option<String>,
    pub before: Side,
    pub after: Side,
    pub pools: Vec<Pool>,
    pub survivors: Vec<Survivor>,
    pub verdicts: Vec<Verdict>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Side {
    /// When the process was looked at for `rss_bytes` and `bands`; `null`: nobody looked near enough in time.
    pub observed_at: Option<String>,
    pub rss_bytes: Option<u64>,
    pub layers: Layers,
    /// Which of `layers` are not exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Bound>,
    pub bands: Bands,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    /// `BFCAllocator`, …
    pub class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// What its regions are, where they are the driver's: `device`, `pinned`, `managed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Layer>,
    /// Of such a pool: bytes of regions without a chunk in use, and host memory that its tables of handles take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_regions_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle_tables_bytes: Option<u64>,
    pub regions: u64,
    pub regions_bytes: u64,
    pub in_use_bytes: u64,
    pub largest_free_bytes: u64,
    /// Bytes handed out since the first boundary that saw the pool, without those that regions added since then could
    /// have served (summed over time: the same memory counts each time it is handed out).
    pub reused_bytes: u64,
    /// Bytes of regions added since the first boundary that saw the pool.
    pub grown_bytes: u64,
    /// Resident bytes of the regions, and of their free part.
    pub resident_bytes: Option<u64>,
    pub free_resident_bytes: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Survivor {
    pub layer: Layer,
    pub bytes: u64,
    pub resident_bytes: Option<u64>,
    pub count: u64,
    /// Set in the row that stands for all groups of its cause that are too small to show: how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded_groups: Option<u64>,
    pub oldest_age_ms: u64,
    pub cause: Cause,
    /// The handle that holds it: `session 3`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    #[serde(rename = "where")]
    pub place: Place,
    /// Key into `stacks`; `null` without stacks.
    pub stack: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    Device,
    Pinned,
    Managed,
    PoolRegion,
    PoolChunk,
    Mapping,
    Heap,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Name of the TensorFlow op.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// `output`, `temp`, `persist`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Variable that the op's name belongs to, where the name says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The user's own line of Python: `train.py:31 open_job`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// Set where that is no line of the thread that allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_of: Option<PythonOf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
}

/// Whose line [`Place::python`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonOf {
    /// Of the thread that began the step (`Session.run`) in which another one allocated.
    Launch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    SessionOpen,
    SessionNotDeleted,
    GraphRetained,
    StatefulResource,
    PythonReference,
    PythonReferenceCycle,
    FunctionTraces,
    PoolReserve,
    HeapReserve,
    PipelineBuffers,
    NativeCache,
    DeviceContext,
    PinnedReserve,
    WorkerState,
    LeftoverProcess,
    BeforeAttach,
    Unexplained,
}

impl Cause {
    /// Memory an allocator keeps for its next user: not a leak, and not counted by `--fail-above`.
    #[must_use]
    pub const fn is_reserve(self) -> bool {
        matches!(self, Self::PoolReserve | Self::HeapReserve | Self::PinnedReserve)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Verdict {
    pub cause: Cause,
    pub bytes: u64,
    /// One plain sentence for a person.
    pub summary: String,
    pub evidence: Vec<String>,
    pub gives_back: String,
    pub refs: Refs,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Refs {
    /// Indexes into the boundary's `survivors`.
    pub survivors: Vec<usize>,
    pub pools: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// The boundary whose survivors the indexes mean (set in the verdicts of the whole trace).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<u64>,
}

/// Boundaries of one kind, one after the other, that gave memory back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Released {
    /// The last of them.
    pub boundary: u64,
    pub count: u64,
    pub first_at: String,
    pub last_at: String,
    pub bytes: u64,
    pub summary: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub kind: FrameKind,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Place of the address in the module's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The compiler put this function's code into the next frame outwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inlined: bool,
    /// Why `name` is a place and no function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<Unknown>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    Python,
    Native,
    Op,
    Kernel,
}

/// Why a function's name is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// The file has no symbols.
    Stripped,
    /// The file has symbols, and none is about this place.
    NoSymbol,
    /// The file is not there any more.
    FileGone,
    /// Another file has its path now.
    FileReplaced,
    /// The file cannot be read, or makes no sense.
    FileUnreadable,
    /// No file shows this code, and the program wrote no map of what it made at run time (`/tmp/perf-PID.map`).
    JitWithoutMap,
    /// There is such a map, and it does not name this place.
    NotInMap,
    /// The Python code object was freed before it was read.
    CodeGone,
    /// The Python code object could not be read: its process had ended, or its memory made no sense.
    CodeUnreadable,
}

impl Frame {
    /// A frame that is known by its name alone.
    #[must_use]
    pub fn named(kind: FrameKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            file: None,
            line: None,
            module: None,
            address: None,
            build_id: None,
            offset: None,
            inlined: false,
            unknown: None,
        }
    }
}
