//! Memory of GPUs, as the driver's calls tell it: what is alive, on which device, in which pool.
//!
//! A byte is counted once, in the driver's layer. What was freed in order of a stream is free in its pool, not on the
//! device: how much a pool has of the device no call tells, so it is known between two bounds.

mod blocks;
mod calls;
mod pools;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{Addr, DeviceIndex, DeviceName, GpuKind, GpuSpace, StackId};
use crate::ledger::types::{Allocation, BlockLayer, SessionId};

pub use pools::{PoolId, StreamPool};

/// Spaces of memory that is counted as such.
const SPACES: [GpuSpace; 4] = [GpuSpace::Memory, GpuSpace::Host, GpuSpace::Array, GpuSpace::Handle];

/// Memory of GPUs of one process.
#[derive(Clone, Debug, Default)]
pub struct Gpus {
    blocks: BTreeMap<(GpuSpace, Addr), GpuBlock>,
    /// Where physical memory shows: start, bytes and handle.
    mappings: BTreeMap<Addr, (u64, Addr)>,
    contexts: BTreeMap<Addr, Context>,
    pools: BTreeMap<PoolId, StreamPool>,
    /// The device's own pools by address, and the ones chosen instead.
    default_pools: BTreeMap<Addr, DeviceIndex>,
    chosen_pools: BTreeMap<DeviceIndex, Addr>,
    names: BTreeMap<DeviceIndex, Names>,
    /// Code that calls the driver: start, end and library.
    code: BTreeMap<Addr, (Addr, Arc<str>)>,
    sums: BTreeMap<(GpuKind, Option<DeviceIndex>), u64>,
    regions: u64,
    region_bytes: u64,
    /// Anything was heard of the driver.
    pub seen: bool,
}

/// What a device is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub uuid: Option<[u8; 16]>,
    pub bus: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context {
    device: DeviceIndex,
    primary: bool,
    /// Of a primary one: how often it was retained and not released.
    retained: u64,
}

/// A piece of memory, or what stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuBlock {
    pub kind: GpuKind,
    pub addr: Addr,
    pub bytes: u64,
    /// `None`: it is not known which.
    pub device: Option<DeviceIndex>,
    /// 0: none, or not known.
    pub context: Addr,
    /// Of stream-ordered memory.
    pub stream_pool: Option<PoolId>,
    /// The pool of TensorFlow's that has it as a region.
    pub region_of: Option<Addr>,
    pub born: u64,
    pub tid: u32,
    pub owner: Option<SessionId>,
    pub stack: Option<StackId>,
    /// Code that asked for it.
    pub caller: Addr,
    /// Of physical memory: its handle, as often as it was retained, and its mappings.
    references: u64,
}

impl GpuBlock {
    /// The layer in which it is memory of its own; `None`: it is addresses, or memory that is counted elsewhere.
    #[must_use]
    pub const fn layer(&self) -> Option<BlockLayer> {
        match self.kind {
            GpuKind::Linear | GpuKind::Array | GpuKind::Stream | GpuKind::Physical => Some(BlockLayer::Device),
            GpuKind::Host | GpuKind::PhysicalHost => Some(BlockLayer::Pinned),
            GpuKind::Managed => Some(BlockLayer::Managed),
            GpuKind::Registered | GpuKind::Addresses | GpuKind::Imported | GpuKind::ImportedHandle | GpuKind::Graph => {
                None
            }
        }
    }

    fn view(&self, layer: BlockLayer) -> Allocation {
        Allocation {
            layer,
            addr: self.addr,
            bytes: self.bytes,
            requested: self.bytes,
            born: self.born,
            tid: self.tid,
            owner: self.owner,
            origin: crate::event::Origin::default(),
            pool: self.region_of,
            stack: self.stack,
            launch: None,
        }
    }
}

impl Gpus {
    /// A forked child's threads have the parent's contexts current; nothing in them is the child's.
    pub(super) fn inherit(&mut self, parent: &Self) {
        for (&addr, context) in &parent.contexts {
            self.contexts.entry(addr).or_insert(Context { retained: 0, ..*context });
        }
    }

    /// All blocks, in order of address within each space.
    pub fn blocks(&self) -> impl Iterator<Item = &GpuBlock> + '_ {
        self.blocks.values()
    }

    /// Stream-ordered pools that were heard of.
    pub fn stream_pools(&self) -> impl Iterator<Item = (PoolId, &StreamPool)> + '_ {
        self.pools.iter().map(|(id, pool)| (*id, pool))
    }

    #[must_use]
    pub fn names(&self, device: DeviceIndex) -> Option<&Names> {
        self.names.get(&device)
    }

    /// Every device that has something here, or a context; `None`: what is on a device that is not known.
    #[must_use]
    pub fn devices(&self) -> Vec<Option<DeviceIndex>> {
        let used = self.sums.keys().filter(|(kind, _)| kind.is_on_device()).map(|(_, device)| *device);
        let contexts = self.contexts.values().map(|context| Some(context.device));
        let pools = self.pools.values().map(|pool| pool.device);
        let mut all: Vec<Option<DeviceIndex>> = used.chain(contexts).chain(pools).collect();
        // What is not known comes last.
        all.sort_by_key(|device| (device.is_none(), *device));
        all.dedup();
        all
    }

    /// Bytes of these kinds on a device.
    #[must_use]
    pub fn bytes_on(&self, device: Option<DeviceIndex>, which: impl Fn(GpuKind) -> bool) -> u64 {
        self.sum(|kind, on| on == device && which(kind))
    }

    fn sum(&self, which: impl Fn(GpuKind, Option<DeviceIndex>) -> bool) -> u64 {
        let all = self.sums.iter().filter(|((kind, device), _)| which(*kind, *device));
        all.map(|(_, bytes)| *bytes).fold(0, u64::wrapping_add)
    }

    /// Bytes of GPUs, of page-locked host memory, of managed memory.
    pub(super) fn totals(&self) -> (u64, u64, u64) {
        let host = |kind| matches!(kind, GpuKind::Host | GpuKind::PhysicalHost | GpuKind::Registered);
        (
            self.sum(|kind, _| kind.is_on_device()),
            self.sum(|kind, _| host(kind)),
            self.sum(|kind, _| kind == GpuKind::Managed),
        )
    }

    pub(super) const fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    pub(super) const fn regions(&self) -> u64 {
        self.regions
    }

    pub fn allocations(&self) -> impl Iterator<Item = Allocation> + '_ {
        self.blocks.values().filter_map(|block| Some(block.view(block.layer()?)))
    }

    pub(super) fn allocation(&self, layer: BlockLayer, addr: Addr) -> Option<Allocation> {
        let mut blocks = SPACES.iter().filter_map(|&space| self.blocks.get(&(space, addr)));
        blocks.find(|block| block.layer() == Some(layer)).map(|block| block.view(layer))
    }

    /// The device that such an allocation is on.
    #[must_use]
    pub fn device_of(&self, layer: BlockLayer, addr: Addr) -> Option<DeviceIndex> {
        let space = |space: &GpuSpace| self.blocks.get(&(*space, addr)).filter(|block| block.layer() == Some(layer));
        SPACES.iter().find_map(space)?.device
    }

    /// Path of the library that asked for such an allocation.
    #[must_use]
    pub fn asked_by(&self, layer: BlockLayer, addr: Addr) -> Option<&Arc<str>> {
        let block = |space: &GpuSpace| self.blocks.get(&(*space, addr)).filter(|block| block.layer() == Some(layer));
        let caller = SPACES.iter().find_map(block)?.caller;
        let (_, (end, path)) = self.code.range(..=caller).next_back()?;
        (caller < *end).then_some(path)
    }

    /// Bytes of GPUs, page-locked and managed memory that are no region of a pool of TensorFlow's.
    #[must_use]
    pub fn outside_pools(&self) -> u64 {
        let registered = self.sum(|kind, _| kind == GpuKind::Registered);
        let (device, pinned, managed) = self.totals();
        device.wrapping_add(pinned).wrapping_add(managed).wrapping_sub(registered).wrapping_sub(self.region_bytes)
    }

    /// The block that a region of a pool of TensorFlow's is.
    #[must_use]
    pub fn region(&self, start: Addr) -> Option<&GpuBlock> {
        let spaces = [GpuSpace::Memory, GpuSpace::Host];
        spaces.iter().filter_map(|&space| self.blocks.get(&(space, start))).find(|block| block.region_of.is_some())
    }
}

impl GpuKind {
    /// It takes memory of a device.
    #[must_use]
    pub const fn is_on_device(self) -> bool {
        matches!(self, Self::Linear | Self::Array | Self::Stream | Self::Physical)
    }
}

impl Names {
    pub(super) fn learn(&mut self, name: &DeviceName) {
        match name {
            DeviceName::Uuid(uuid) => self.uuid = Some(*uuid),
            DeviceName::Bus(bus) => self.bus = Some(bus.clone()),
        }
    }
}
