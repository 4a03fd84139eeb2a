//! One process: what it is, what it holds, what it did.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::event::{Addr, Body, Event, ExitStatus, LibraryInfo, ProcessInfo, Snapshot};
use crate::ledger::calls::{Steps, Thread};
use crate::ledger::distributed::{Masters, Servers, WorkerSessions};
use crate::ledger::map::{MemoryMap, kind_of};
use crate::ledger::missed::Losses;
use crate::ledger::sessions::Sessions;
use crate::ledger::table::{Names, Table};
use crate::ledger::types::{
    Allocation, Anomalies, BlockLayer, Change, Ended, HandleCount, Identity, Pool, Session, SessionCounts, SessionId,
    Totals,
};

#[derive(Debug, Default)]
pub struct Process {
    pub pid: u32,
    /// 0: not known.
    pub ppid: u32,
    /// When it was forked; for a process that was there before, when it started or was first seen.
    pub born: u64,
    pub identity: Identity,
    pub ended: Option<Ended>,
    /// The process it was forked from, when that was seen.
    pub forked_from: Option<u32>,
    /// Programs it became by `exec`.
    pub execs: u64,
    pub sessions: Sessions,
    /// Pools alive, by the address of their allocator object.
    pub pools: BTreeMap<Addr, Pool>,
    pub pool_handles: HandleCount,
    pub graphs: HandleCount,
    pub contexts: HandleCount,
    pub functions: HandleCount,
    /// Sessions of clients that this process works for, apart from its own.
    pub worker_sessions: WorkerSessions,
    pub servers: Servers,
    pub masters: Masters,
    /// How often its containers were cleared (`Worker::CleanupAllAsync`) and when last; and `TF_Reset`s it made.
    pub cleanups: u64,
    pub last_cleanup: Option<u64>,
    pub resets: u64,
    pub anomalies: Anomalies,
    /// Bytes given back by `madvise`, in all: the mappings stay.
    pub advised_bytes: u64,
    /// Events from probes, observations not counted.
    pub events: u64,

    /// Memory copied from the parent is still there: it forked and has not called `exec`.
    pub(super) inherits: bool,
    /// It runs in this process' memory, after `vfork` and before `exec`.
    pub(super) shares_with: Option<u32>,
    /// Calls its one thread was inside of when it was forked: they may return here too.
    pub(super) inherited_calls: usize,

    pub(super) chunks: Table,
    pub(super) heap: Table,
    pub(super) names: Names,
    pub(super) regions: u64,
    pub(super) region_bytes: u64,
    pub(super) map: MemoryMap,
    pub(super) losses: Losses,
    pub(super) polled: bool,
    pub(super) threads: FxHashMap<u32, Thread>,
    pub(super) steps: Steps,
}

impl Process {
    pub(super) fn new(pid: u32, born: u64) -> Self {
        Self { pid, born, ..Self::default() }
    }

    #[must_use]
    pub const fn alive(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether any probe told something of this process.
    #[must_use]
    pub const fn has_events(&self) -> bool {
        self.events > 0
    }

    /// Whether it was running before the trace began: what it held then is not in the ledger.
    #[must_use]
    pub fn attached(&self) -> bool {
        self.identity.info.as_ref().is_some_and(|info| info.attached)
    }

    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.find(id)
    }

    #[must_use]
    pub const fn session_counts(&self) -> SessionCounts {
        self.sessions.counts()
    }

    /// Chunks and heap blocks alive, in no order.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.chunks().chain(self.heap_blocks())
    }

    pub fn chunks(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.chunks.rows().iter().map(|row| self.names.view(BlockLayer::Chunk, row))
    }

    /// Blocks of the C heap, those that are regions of a pool included.
    pub fn heap_blocks(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.heap.rows().iter().map(|row| self.names.view(BlockLayer::Heap, row))
    }

    /// The block that starts at this address. A region and its first chunk start at the same one.
    #[must_use]
    pub fn allocation(&self, layer: BlockLayer, addr: Addr) -> Option<Allocation> {
        let table = match layer {
            BlockLayer::Chunk => &self.chunks,
            BlockLayer::Heap => &self.heap,
        };
        table.get(addr).map(|row| self.names.view(layer, row))
    }

    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            chunk_bytes: self.chunks.bytes(),
            chunks: self.chunks.len(),
            region_bytes: self.region_bytes,
            regions: self.regions,
            heap_bytes: self.heap.bytes().wrapping_sub(self.region_bytes),
            heap_blocks: self.heap.len().saturating_sub(self.regions),
            mapping_bytes: self.map.bytes(),
        }
    }

    #[must_use]
    pub const fn memory_map(&self) -> &MemoryMap {
        &self.map
    }

    /// The largest stretch of the pool's regions that no chunk covers. Looks at every chunk: not for each event.
    #[must_use]
    pub fn largest_free(&self, pool: Addr) -> u64 {
        let Some(regions) = self.pools.get(&pool).map(|p| &p.regions) else { return 0 };
        let id = self.names.pools.find(pool).unwrap_or(0);
        let mut used: Vec<(Addr, Addr)> = self
            .chunks
            .rows()
            .iter()
            .filter(|row| row.pool == id)
            .map(|row| (row.addr, row.addr.saturating_add(row.bytes)))
            .collect();
        used.sort_unstable();
        let mut largest = 0;
        for region in regions {
            let end = region.start.saturating_add(region.bytes);
            let mut free_from = region.start;
            let first = used.partition_point(|c| c.0 < region.start);
            for &(from, to) in used.iter().skip(first).take_while(|c| c.0 < end) {
                largest = largest.max(from.saturating_sub(free_from));
                free_from = free_from.max(to);
            }
            largest = largest.max(end.saturating_sub(free_from));
        }
        largest
    }

    /// Events of the process itself. Those of memory come to the process whose memory it is.
    pub(super) fn apply(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let at = event.at;
        match &event.body {
            Body::Enter { call, args, text } => self.enter(event, *call, args, text.as_ref(), changes),
            Body::Leave { call, ret } => self.leave(event, *call, *ret, changes),
            Body::ThreadExit => self.thread_exit(event, changes),
            Body::Exec => self.exec(),
            Body::Ended { status } => self.end(at, *status, changes),
            Body::Process(info) => self.identify(info),
            Body::Library(library) => self.library(library),
            Body::Heap(heap) => self.identity.heap = Some((at, *heap)),
            Body::Holders(holders) => {
                if self.attached() && self.identity.holders.is_none() {
                    self.identity.held_before = Some((at, holders.clone()));
                }
                self.identity.holders = Some((at, holders.clone()));
            }
            Body::Snapshot(snapshot) => self.observe(at, snapshot, changes),
            _ => self.apply_memory(event),
        }
    }

    pub(super) fn apply_memory(&mut self, event: &Event) {
        let (at, tid) = (event.at, event.tid);
        match &event.body {
            Body::ChunkAlloc { pool, addr, requested, bytes, origin } => {
                self.chunk_alloc(event, *pool, *addr, (*requested, *bytes), origin);
            }
            Body::ChunkFree { pool, addr } => self.chunk_free(at, *pool, *addr),
            Body::HeapAlloc { addr, bytes, origin } => self.heap_alloc(event, *addr, *bytes, origin),
            Body::HeapFree { addr } => self.heap_free(tid, *addr),
            Body::Map { start, len, flags, file, .. } => self.map.map(*start, *len, kind_of(*flags, *file), at, tid),
            Body::Unmap { start, len } => self.map.unmap(*start, *len),
            Body::Remap { old_start, old_len, start, len, keep_old, took } => {
                let began = at.saturating_sub(u64::from(*took));
                self.map.remap((*old_start, *old_len), (*start, *len), *keep_old, (began, at), tid);
            }
            Body::Missed { what, total } => self.missed(at, *what, *total),
            Body::Brk { end } => self.map.set_break(*end, at, tid),
            Body::Advise { len, advice, .. } => {
                // MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_DONTNEED_LOCKED: those that give pages back.
                if matches!(advice, 4 | 8 | 9 | 24) {
                    self.advised_bytes = self.advised_bytes.saturating_add(*len);
                }
            }
            _ => {}
        }
    }

    fn identify(&mut self, info: &std::sync::Arc<ProcessInfo>) {
        if info.ppid != 0 {
            self.ppid = info.ppid;
        }
        if self.forked_from.is_none() && info.started_at != 0 {
            self.born = info.started_at;
        }
        self.identity.info = Some(info.clone());
    }

    fn library(&mut self, library: &std::sync::Arc<LibraryInfo>) {
        // Told again when more of its probes went in.
        self.identity.libraries.retain(|known| known.path != library.path);
        self.identity.libraries.push(library.clone());
    }

    fn observe(&mut self, at: u64, snapshot: &std::sync::Arc<Snapshot>, changes: &mut Vec<Change>) {
        // What it shows of a process that runs in its parent's memory is the parent's.
        if !snapshot.mappings.is_empty() && self.shares_with.is_none() {
            let drift = self.map.reconcile(&snapshot.mappings);
            // What is lost is counted as such, and what nobody tells of is no drift.
            let expected = self.polled || self.mapping_bound().is_some();
            self.anomalies.mapping_drift_bytes = if expected { 0 } else { drift.unexpected };
            let untold = if self.polled { drift.unexpected.saturating_add(drift.untold) } else { drift.untold };
            self.anomalies.mapping_untold_bytes = self.anomalies.mapping_untold_bytes.saturating_add(untold);
            self.resynchronise();
        }
        self.identity.snapshot = Some((at, snapshot.clone()));
        changes.push(Change::Snapshot);
    }

    /// Whether its mappings are known from looks alone.
    #[must_use]
    pub const fn polled(&self) -> bool {
        self.polled
    }

    /// What a child has when it is forked: its parent's mappings, no record of the blocks in them.
    pub(super) fn forked(&mut self, parent: &Self, tid: u32, at: u64, shares_memory: bool) {
        self.ppid = parent.pid;
        self.forked_from = Some(parent.pid);
        self.born = at;
        if shares_memory {
            self.shares_with = Some(parent.pid);
        } else {
            self.inherits = true;
            // One that ends before anybody asked who it is is still its parent's copy, libraries and all. Without the
            // start: that of another process.
            if self.identity.info.is_none()
                && let Some(info) = &parent.identity.info
            {
                let (ppid, started_at, attached) = (parent.pid, 0, false);
                let info = ProcessInfo { ppid, started_at, attached, ..ProcessInfo::clone(info) };
                self.identity.info = Some(info.into());
            }
            if self.identity.libraries.is_empty() {
                self.identity.libraries.clone_from(&parent.identity.libraries);
            }
            // Not when its own events came before the one that tells of the fork.
            if self.map.is_empty() {
                self.map = parent.map.clone();
            }
        }
        self.inherited_calls = parent.threads.get(&tid).map_or(0, |t| t.stack.len());
    }

    /// Another program takes over: nothing of the old one's memory is left, its counts are.
    fn exec(&mut self) {
        self.execs += 1;
        self.inherits = false;
        self.shares_with = None;
        self.inherited_calls = 0;
        self.sessions.dropped();
        self.pools.clear();
        self.chunks = Table::default();
        self.heap = Table::default();
        self.names = Names::default();
        (self.regions, self.region_bytes) = (0, 0);
        self.map = MemoryMap::default();
        self.losses.exec();
        self.threads.clear();
        self.steps = Steps::default();
        self.forget_distributed();
        self.identity.libraries.clear();
        self.identity.snapshot = None;
        self.identity.heap = None;
        self.identity.holders = None;
        self.identity.held_before = None;
        // Its parent's description does not fit any more.
        if self.identity.info.as_ref().is_some_and(|info| info.started_at == 0) {
            self.identity.info = None;
        }
    }

    /// The state stays as it was; only what serves further events goes.
    pub(super) fn end(&mut self, at: u64, status: Option<ExitStatus>, changes: &mut Vec<Change>) {
        self.ended = Some(Ended { at, status });
        self.threads = FxHashMap::default();
        self.steps = Steps::default();
        changes.push(Change::ProcessEnded);
    }
}
