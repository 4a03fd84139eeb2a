//! What was alive at a moment that is no boundary, and all that was ever taken. Pure: from the events of a recording.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::event::{Addr, Body, Event, StackId};
use crate::ledger::types::{Allocation, BlockLayer, Totals};
use crate::ledger::{Ledger, Process};
use crate::report::model::{Frame, Layer};
use crate::retention::{devices, stacks};

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// When most bytes were held.
    Peak,
    /// So long after the trace began.
    After(Duration),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "peak" {
            return Ok(Self::Peak);
        }
        let time = humantime::parse_duration(text);
        time.map(Self::After)
            .map_err(|_| "expected peak, or a time since the trace began, such as 12.5s or 3m".to_owned())
    }
}

/// Whose blocks count, and which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Of {
    pub pid: Option<u32>,
    pub layer: Option<Layer>,
}

/// Blocks with the same process, layer, op and stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Number of the process in the ledger.
    pub process: usize,
    pub pid: u32,
    pub layer: Layer,
    pub op: Option<String>,
    pub stack: Option<StackId>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub bytes: u64,
    pub count: u64,
}

/// Blocks in groups, and the frames of their stacks, which may have no names yet.
#[derive(Debug, Default)]
pub struct Held {
    pub(super) groups: BTreeMap<Key, Sum>,
    pub stacks: BTreeMap<String, Vec<Frame>>,
    /// Since the trace began, ns; `None`: all of it.
    pub after_ns: Option<u64>,
}

/// All that was ever taken, given back since or not.
#[must_use]
pub fn ever(events: impl Iterator<Item = Event>, of: Of) -> Held {
    let mut pass = Pass::new(of);
    let mut held = Held::default();
    for event in events {
        pass.apply(&event);
        let taken = match event.body {
            Body::ChunkAlloc { addr, .. } => pass.block(event.pid, BlockLayer::Chunk, addr),
            Body::HeapAlloc { addr, .. } => pass.block(event.pid, BlockLayer::Heap, addr),
            _ => None,
        };
        if let Some((process, block)) = taken {
            held.add(&pass.ledger, (process, event.pid), &block);
        }
    }
    held.finish(&pass.ledger)
}

/// What was alive after this many nanoseconds of the trace.
#[must_use]
pub fn live(events: impl Iterator<Item = Event>, after_ns: u64, of: Of) -> Held {
    let mut pass = Pass::new(of);
    for event in events {
        let start = *pass.start.get_or_insert(event.at);
        if event.at.saturating_sub(start) > after_ns {
            break;
        }
        pass.apply(&event);
    }
    let mut held = Held { after_ns: Some(after_ns), ..Held::default() };
    for (i, process) in pass.ledger.processes().enumerate().filter(|(_, process)| process.alive()) {
        for block in process.allocations().filter(|block| pass.of.includes(process.pid, block)) {
            held.add(&pass.ledger, (i, process.pid), &block);
        }
    }
    held.finish(&pass.ledger)
}

/// How long after the start of the trace most bytes were held (the first time that it was so many). `None`: never any.
#[must_use]
pub fn peak(events: impl Iterator<Item = Event>, of: Of) -> Option<u64> {
    let mut pass = Pass::new(of);
    let (mut by_pid, mut sum, mut most) = (FxHashMap::<u32, Holding>::default(), 0_u64, (0, None));
    for event in events {
        pass.apply(&event);
        let Some(process) = pass.ledger.process(event.pid) else { continue };
        let holding = by_pid.entry(event.pid).or_default();
        sum = sum.wrapping_sub(holding.bytes).wrapping_add(holding.update(of, process));
        if sum > most.0 {
            most = (sum, pass.start.map(|start| event.at.saturating_sub(start)));
        }
    }
    most.1
}

/// One way through the events.
struct Pass {
    of: Of,
    ledger: Ledger,
    start: Option<u64>,
    changes: Vec<crate::ledger::types::Change>,
    /// Numbers of the processes in the ledger.
    numbers: FxHashMap<u32, usize>,
    known: usize,
}

impl Pass {
    fn new(of: Of) -> Self {
        let (ledger, numbers) = (Ledger::new(), FxHashMap::default());
        Self { of, ledger, start: None, changes: Vec::new(), numbers, known: 0 }
    }

    fn apply(&mut self, event: &Event) {
        self.start.get_or_insert(event.at);
        self.changes.clear();
        self.ledger.apply(event, &mut self.changes);
        for process in self.ledger.processes().skip(self.known) {
            self.numbers.insert(process.pid, self.known);
            self.known += 1;
        }
    }

    /// The block that was just taken there, if it counts.
    fn block(&self, pid: u32, layer: BlockLayer, addr: Addr) -> Option<(usize, Allocation)> {
        let block = self.ledger.process(pid)?.allocation(layer, addr)?;
        self.of.includes(pid, &block).then(|| self.numbers.get(&pid).map(|&number| (number, block)))?
    }
}

impl Of {
    fn includes(self, pid: u32, block: &Allocation) -> bool {
        let meant = match self.layer {
            // A region is a pool's: its chunks count.
            None | Some(Layer::Heap) if block.layer != BlockLayer::Chunk && block.pool.is_some() => false,
            None => true,
            Some(wanted) => wanted == layer(block),
        };
        meant && self.pid.is_none_or(|wanted| wanted == pid)
    }
}

const fn layer(block: &Allocation) -> Layer {
    devices::layer(block.layer)
}

/// What a process holds, followed from event to event.
#[derive(Default)]
struct Holding {
    bytes: u64,
    /// Sums that change when GPU memory outside of pools does, and how much that is.
    gpu: u64,
    outside: u64,
}

impl Holding {
    fn update(&mut self, of: Of, process: &Process) -> u64 {
        let totals = process.totals();
        self.bytes = match of.layer {
            _ if !process.alive() || of.pid.is_some_and(|wanted| wanted != process.pid) => 0,
            Some(Layer::PoolChunk) => totals.chunk_bytes,
            Some(Layer::Heap) => totals.heap_bytes,
            Some(Layer::Device) => totals.device_bytes,
            Some(Layer::Pinned) => totals.pinned_bytes,
            Some(Layer::Managed) => totals.managed_bytes,
            Some(Layer::PoolRegion | Layer::Mapping) => 0,
            None => totals.chunk_bytes.saturating_add(totals.heap_bytes).saturating_add(self.outside(&totals, process)),
        };
        self.bytes
    }

    /// GPU memory that is no region of a pool. Looked for only when it may have changed.
    fn outside(&mut self, totals: &Totals, process: &Process) -> u64 {
        let sums = [totals.device_bytes, totals.pinned_bytes, totals.managed_bytes, totals.region_bytes];
        let gpu = sums.into_iter().fold(0, u64::wrapping_add);
        if gpu != self.gpu {
            let blocks = process.gpu.allocations().filter(|block| block.pool.is_none());
            self.outside = blocks.fold(0, |sum: u64, block| sum.saturating_add(block.bytes));
            self.gpu = gpu;
        }
        self.outside
    }
}

impl Held {
    fn add(&mut self, ledger: &Ledger, (process, pid): (usize, u32), block: &Allocation) {
        let op = ledger.op_name(block.origin.op).map(|name| name.to_string());
        let key = Key { process, pid, layer: layer(block), op, stack: block.stack };
        let sum = self.groups.entry(key).or_default();
        sum.bytes = sum.bytes.saturating_add(block.bytes);
        sum.count += 1;
    }

    fn finish(mut self, ledger: &Ledger) -> Self {
        let ids = self.groups.keys().filter_map(|key| key.stack);
        self.stacks = ids.filter_map(|id| Some((stacks::name(id), stacks::frames(ledger.stacks(), id)?))).collect();
        self
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use crate::retention::testing::events;

    const MIB: u64 = 1 << 20;

    /// 16 MiB and 3 MiB live together from 1.021 s on; the 16 go at 3 s, and 8 come at 4 s in their place.
    const SCRIPT: &str = "0 start\n1 10 process /srv/jobs/train.py\n2 10 tensorflow 2.21.0\n3 10 pool f00 mklcpu\n\
        4 10 extend f00 10000000 256M\n1020 10 chunk f00 11000000 16M w/Initializer/zeros\n\
        1021 10 heap 51000000 3M MatMul:temp\n3000 10 unchunk f00 11000000\n4000 10 chunk f00 11000000 8M x/Add\n\
        9000 10 exit 0\n9001 end\n";

    fn bytes(held: &Held) -> Vec<(Option<&str>, u64)> {
        held.groups.iter().map(|(key, sum)| (key.op.as_deref(), sum.bytes / MIB)).collect()
    }

    #[test]
    fn the_peak_is_found_and_drawn() {
        let of = Of::default();
        let at = peak(events(SCRIPT).into_iter(), of).expect("a peak");
        assert_eq!(at, 1_021_000_000);
        let held = live(events(SCRIPT).into_iter(), at, of);
        assert_eq!(bytes(&held), [(Some("w/Initializer/zeros"), 16), (Some("MatMul"), 3)]);
        let heap = Of { layer: Some(Layer::Heap), ..of };
        assert_eq!(bytes(&live(events(SCRIPT).into_iter(), at, heap)), [(Some("MatMul"), 3)]);
        assert_eq!(peak(events(SCRIPT).into_iter(), Of { pid: Some(11), ..of }), None);
    }

    #[test]
    fn what_is_given_back_is_not_alive_but_was_taken() {
        let held = live(events(SCRIPT).into_iter(), 3_500_000_000, Of::default());
        assert_eq!(bytes(&held), [(Some("MatMul"), 3)]);
        let all = ever(events(SCRIPT).into_iter(), Of::default());
        assert_eq!(bytes(&all), [(Some("w/Initializer/zeros"), 16), (Some("x/Add"), 8), (Some("MatMul"), 3)]);
        assert_eq!(bytes(&live(events(SCRIPT).into_iter(), 9_000_000_000, Of::default())), []);
    }

    #[test]
    fn moments_are_read() {
        assert_eq!("peak".parse(), Ok(Moment::Peak));
        assert_eq!("1m 30s".parse(), Ok(Moment::After(Duration::from_secs(90))));
        assert!("end".parse::<Moment>().is_err());
    }
}
