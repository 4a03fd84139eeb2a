//! What the stage keeps of a boundary, from the call that closes to the row in the report. Times stay in ns here:
//! where the boot clock lies on the wall clock is known only when the report is made.

use std::sync::Arc;

use super::growth::Alive;
use super::predictions::Walk;
use crate::event::{Addr, Snapshot};
use crate::ledger::Process;
use crate::ledger::distributed::ServerId;
use crate::ledger::types::{self, BlockLayer, SessionId};
use crate::report::model::{Bands, Bound, BoundaryKind, Device, Layer, Layers, Pool, Survivor, Verdict};

/// The process on one side of a boundary.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    pub observed: Option<u64>,
    pub rss: Option<u64>,
    pub layers: Layers,
    pub bounds: Vec<Bound>,
    pub bands: Bands,
    pub devices: Vec<Device>,
}

impl Side {
    pub const fn of(layers: Layers, bounds: Vec<Bound>, devices: Vec<Device>) -> Self {
        let bands = Bands {
            pool_in_use: None,
            pool_free: None,
            heap_in_use: None,
            heap_free: None,
            mappings_other: None,
            files: None,
            unexplained: None,
        };
        Self { observed: None, rss: None, layers, bounds, bands, devices }
    }

    pub const fn see(&mut self, look: &Look) {
        self.observed = Some(look.at);
        self.rss = Some(look.rss);
        self.bands = look.bands;
    }
}

/// An observation with what the ledger made of it at that moment.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub at: u64,
    pub rss: u64,
    pub bands: Bands,
    /// Pool, resident bytes of its regions, and of their free part.
    pub pools: Vec<(Addr, u64, u64)>,
    pub snapshot: Arc<Snapshot>,
}

/// A block as the closing call found it: born and bytes tell it from a later one at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Block {
    pub layer: BlockLayer,
    pub addr: Addr,
    pub born: u64,
    pub bytes: u64,
}

/// What a boundary is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Session(SessionId),
    /// A client's session as this worker knows it.
    Worker(SessionId),
    Server(ServerId),
    Context(Addr),
    /// A mark, by its place in the list of labels.
    Mark(usize),
    /// A function that the user named as a boundary.
    Symbol(u16),
    Process,
}

/// A boundary whose closing call is under way, or whose grace time runs.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub kind: BoundaryKind,
    pub subject: Subject,
    pub opened: u64,
    /// When the closing call began.
    pub began: u64,
    /// When it returned, and when the survivors are due; 0 while it is under way.
    pub at: u64,
    pub due: u64,
    pub before: Side,
    /// What the closing call may give back; taken once, when it is settled what it did.
    pub blocks: Vec<Block>,
    pub given_back: Option<u64>,
}

/// A survivor row with the ranges its resident bytes are looked up for.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub survivor: Survivor,
    pub ranges: Vec<(Addr, u64)>,
}

#[derive(Clone, Debug)]
pub(super) struct PoolRow {
    pub addr: Addr,
    pub pool: Pool,
}

/// A descendant that was still alive a grace time after the process ended.
#[derive(Clone, Debug)]
pub(super) struct Leftover {
    /// Its place in the ledger: a pid can be used again.
    pub index: usize,
    pub pid: u32,
    pub name: String,
    /// When its resident bytes were read, and what they were.
    pub seen: Option<(u64, u64)>,
}

/// A boundary whose survivors are known.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub id: u64,
    pub kind: BoundaryKind,
    pub subject: Subject,
    /// A session's handle, a mark's label, a symbol.
    pub name: Option<Arc<str>>,
    pub opened: u64,
    pub at: u64,
    /// When the survivors were taken.
    pub after: u64,
    pub before: Side,
    pub after_side: Side,
    pub pools: Vec<PoolRow>,
    pub rows: Vec<Row>,
    pub verdicts: Vec<Verdict>,
    pub given_back: u64,
    pub leftovers: Vec<Leftover>,
    /// The places with most bytes alive then.
    pub alive: Vec<Alive>,
    /// The walk through the heap that tells of it.
    pub heap: Option<Walk>,
    /// No observation has filled in resident bytes yet.
    pub awaits_look: bool,
    /// When the search began that says who holds its survivors.
    pub holders_at: Option<u64>,
}

impl Record {
    /// Fills in what an observation says of resident bytes.
    pub fn see(&mut self, look: &Look) {
        // Totals alone tell the RSS; a look at the pages may still come and tell the rest.
        self.awaits_look = look.snapshot.resident.is_none();
        self.after_side.see(look);
        if matches!(self.subject, Subject::Process) {
            self.before = self.after_side.clone();
        }
        for row in &mut self.pools {
            if let Some(&(_, resident, free)) = look.pools.iter().find(|(addr, ..)| *addr == row.addr) {
                row.pool.resident_bytes = Some(resident);
                row.pool.free_resident_bytes = Some(free);
            }
        }
        let Some(resident) = look.snapshot.resident.as_deref() else { return };
        for row in &mut self.rows {
            let bytes = row
                .ranges
                .iter()
                .map(|&(start, len)| super::residency::resident_in(resident, start, len))
                .fold(0, u64::saturating_add);
            row.survivor.resident_bytes = Some(bytes);
            row.ranges = Vec::new();
        }
    }

    /// No observation will come any more: the ranges are of no use.
    pub fn give_up_look(&mut self) {
        self.awaits_look = false;
        for row in &mut self.rows {
            row.ranges = Vec::new();
        }
    }
}

/// Which sums of the ledger are not exact.
pub(super) fn bounds(process: &Process) -> Vec<Bound> {
    let all = [
        (Layer::PoolChunk, process.chunk_bound()),
        (Layer::PoolRegion, process.region_bound()),
        (Layer::Heap, process.heap_bound()),
        (Layer::Mapping, process.mapping_bound()),
        (Layer::Device, process.gpu_bound()),
    ];
    let bound = |(layer, bound): (Layer, Option<types::Bound>)| {
        let types::Bound { at_least, at_most, missed, stale } = bound?;
        let (at_least_bytes, at_most_bytes) = (at_least, at_most);
        Some(Bound { layer, at_least_bytes, at_most_bytes, lost_allocations: missed, maybe_freed: stale })
    };
    all.into_iter().filter_map(bound).collect()
}

/// Sums of the ledger as layers. `watched`: TensorFlow's probes are in the process; without them nobody looked. The same
/// holds for the GPU's driver.
pub(super) fn layers(process: &Process, watched: bool) -> Layers {
    let totals = process.totals();
    let gpu = super::devices::watched(process);
    let seen = |bytes: u64| (watched || bytes > 0).then_some(bytes);
    let told = |bytes: u64| gpu.then_some(bytes);
    Layers {
        device: told(totals.device_bytes),
        pinned: told(totals.pinned_bytes),
        managed: told(totals.managed_bytes),
        pool_region: seen(totals.region_bytes),
        pool_chunk: seen(totals.chunk_bytes),
        mapping: (totals.mapping_bytes > 0).then_some(totals.mapping_bytes),
        heap: seen(totals.heap_bytes),
    }
}
