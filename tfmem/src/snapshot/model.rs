//! A snapshot as data: what JSON shows is this, and text is made from it. All sizes are bytes.

use serde::{Deserialize, Serialize};

use super::objects::Kind;
use crate::{
    event::{Addr, HolderKind, Scope},
    report::model::Host,
};

/// The JSON Schema of a [`Snapshot`].
pub const SCHEMA: &str = include_str!("../../schema/snapshot-1.schema.json");
/// Its name and version.
pub const NAME: &str = "tfmem.snapshot/1";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub schema: String,
    pub tfmem: Version,
    pub host: Host,
    pub taken_at: String,
    pub took_ms: u64,
    /// The most memory that tfmem itself had.
    pub own_peak_bytes: u64,
    pub processes: Vec<Process>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub comm: String,
    pub exe: String,
    pub rss_bytes: u64,
    pub swapped_bytes: u64,
    pub heap: Heap,
    pub python: Option<Python>,
    pub pools: Vec<Pool>,
    /// Resident memory in parts that do not overlap; with `unexplained_bytes` they are all of it.
    pub resident: Vec<Part>,
    pub unexplained_bytes: u64,
    /// Classes that matter and all others with many bytes, the largest first.
    pub classes: Vec<Class>,
    pub holders: Vec<Holder>,
    /// Resident mappings of files, the largest first.
    pub mappings: Vec<Mapping>,
    pub checks: Vec<Check>,
    /// What changed or vanished while it was read.
    pub lost_bytes: u64,
    /// What the figures lack, and why.
    pub notes: Vec<String>,
    pub stages: Vec<Stage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heap {
    /// `glibc`, `jemalloc`, `tcmalloc`, `mimalloc`, `musl` or `unknown`.
    pub allocator: String,
    /// `None`: not glibc's, or its check failed.
    pub figures: Option<HeapFigures>,
    pub arenas: Vec<Arena>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapFigures {
    /// In arenas, with what waits in the threads' caches.
    pub in_use_bytes: u64,
    pub free_bytes: u64,
    pub free_resident_bytes: u64,
    /// `malloc_trim(0)` would give it back.
    pub trimmable_bytes: u64,
    /// Freed, in the caches of threads; counted as in use.
    pub thread_cache_bytes: u64,
    /// Heads and fenceposts.
    pub overhead_bytes: u64,
    /// Taken by other callers of `sbrk` in the middle of the heap.
    pub foreign_bytes: u64,
    pub mapped_chunks: u64,
    pub mapped_chunk_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arena {
    /// `main` or `thread`.
    pub kind: String,
    pub in_use_bytes: u64,
    pub free_bytes: u64,
    pub free_resident_bytes: u64,
    pub trimmable_bytes: u64,
    pub not_trimmable_bytes: u64,
    pub not_trimmable_because: Option<String>,
    pub system_bytes: u64,
    pub walked_bytes: u64,
    pub lost_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    pub version: String,
    pub arenas: u64,
    pub used_bytes: u64,
    /// Free in pools that have a block in use or had one.
    pub free_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    pub name: Option<String>,
    pub class: String,
    pub regions: u64,
    pub regions_bytes: u64,
    pub resident_bytes: u64,
    pub in_use_bytes: u64,
    pub free_bytes: u64,
    pub largest_free_bytes: u64,
    pub chunks: u64,
    /// Why nothing is said of it; all figures are 0 then.
    pub refused: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub what: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    pub class: String,
    pub kind: Kind,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// `variable`, `table`, `Python object`, … or `no holder found`.
    pub owner: String,
    pub class: String,
    pub name: Option<String>,
    pub container: Option<String>,
    /// Data of tensors, or of the table, that it holds.
    pub bytes: u64,
    /// Buffers, or blocks of the table.
    pub count: u64,
    /// The way from one of them to the holder and beyond.
    pub chain: Vec<String>,
    /// As many references were found as the buffers count: no other holder is missing.
    pub complete: bool,
    #[serde(skip)]
    pub kind: HolderKind,
    /// What its container belongs to.
    #[serde(skip)]
    pub scope: Option<Scope>,
    /// Where the data lie.
    #[serde(skip)]
    pub blocks: Vec<Addr>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub what: String,
    pub bytes: u64,
    pub resident_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    pub expected: u64,
    pub found: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    pub name: String,
    pub us: u64,
    /// Read from the process.
    pub bytes: u64,
}
