//! Who held what, as a look at the process' memory found it, for the blocks that the ledger knows.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::scene::is_memory;
use super::watch::is_unfollowed;
use crate::event::{Addr, Holder, HolderKind};
use crate::ledger::Process;
use crate::ledger::types::{Allocation, BlockLayer};
use crate::report::units::plain;

#[derive(Debug, Default)]
pub(super) struct Holders {
    seen_at: Option<u64>,
    all: Arc<[Holder]>,
    by_block: FxHashMap<Addr, usize>,
    unseen: Vec<Unseen>,
}

/// What a holder has that no event told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unseen {
    /// The holder's number.
    pub holder: usize,
    pub bytes: u64,
    pub count: u64,
    /// Of the bytes: those in a pool. The blocks of one holder are taken to be of one size.
    pub in_pools: u64,
}

impl Holders {
    /// Those that tell of this moment. What was held before a boundary may have been let go by it; the search for holders
    /// is the last thing that is done before an end.
    pub fn at(process: &Process, at: u64, is_end: bool) -> Self {
        let Some((seen, all)) = &process.identity.holders else { return Self::default() };
        if *seen < at && !is_end {
            return Self::default();
        }
        let blocks = all.iter().enumerate().flat_map(|(i, holder)| holder.blocks.iter().map(move |&block| (block, i)));
        let unseen = unseen(process, all, *seen);
        Self { seen_at: Some(*seen), all: all.clone(), by_block: blocks.collect(), unseen }
    }

    /// When the search began.
    pub const fn seen_at(&self) -> Option<u64> {
        self.seen_at
    }

    /// The holder of a block, by its number. A block that was made after the search is another one at that address.
    pub fn of(&self, block: &Allocation) -> Option<usize> {
        self.seen_at.filter(|&seen| block.born <= seen)?;
        self.by_block.get(&block.addr).copied()
    }

    /// What holders have that was there before the trace, or all that they have where allocations are not followed.
    pub fn unseen(&self) -> impl Iterator<Item = (&Holder, Unseen)> {
        self.unseen.iter().filter_map(|&unseen| Some((self.all.get(unseen.holder)?, unseen)))
    }

    pub fn get(&self, number: usize) -> Option<&Holder> {
        self.all.get(number)
    }

    /// Tables: what hangs on them is no allocation that the ledger knows.
    pub fn tables(&self) -> impl Iterator<Item = &Holder> {
        self.all.iter().filter(|holder| holder.kind == HolderKind::Table)
    }
}

fn unseen(process: &Process, all: &[Holder], seen: u64) -> Vec<Unseen> {
    let followed = !is_unfollowed(process);
    let before = process.identity.held_before.as_ref().filter(|(at, _)| *at < seen);
    let before: FxHashSet<Addr> =
        before.into_iter().flat_map(|(_, all)| all.iter()).flat_map(|holder| holder.blocks.iter().copied()).collect();
    let one = |(number, holder): (usize, &Holder)| {
        let (mut told, mut count, mut in_pools) = (0_u64, 0_u64, 0_u64);
        for &block in &holder.blocks {
            let known = |layer| process.allocation(layer, block).filter(is_memory);
            match known(BlockLayer::Chunk).or_else(|| known(BlockLayer::Heap)) {
                Some(block) => told = told.saturating_add(block.bytes),
                // Neither made while the trace looked on, nor there when it began: that it was missed is all that is known.
                None if followed && !before.contains(&block) => return None,
                None => {
                    count += 1;
                    in_pools += u64::from(in_pool(process, block));
                }
            }
        }
        let bytes = holder.bytes.saturating_sub(told);
        let in_pools = u128::from(bytes) * u128::from(in_pools) / u128::from(count.max(1));
        (count > 0).then_some(Unseen { holder: number, bytes, count, in_pools: in_pools as u64 })
    };
    all.iter().enumerate().filter_map(one).collect()
}

fn in_pool(process: &Process, block: Addr) -> bool {
    let mut regions = process.pools.values().flat_map(|pool| &pool.regions);
    regions.any(|region| block.wrapping_sub(region.start) < region.bytes)
}

/// `variable "w" in container "localhost"`, `dataset cache`, `Python object (…EagerTensor)`
pub(super) fn shown(holder: &Holder) -> String {
    let what = plain(&holder.what, 40);
    let name = holder.name.as_ref().map(|name| format!(" \"{}\"", plain(name, 60)));
    let class = (holder.kind == HolderKind::Python).then(|| format!(" ({})", plain(&holder.class, 80)));
    let container = holder.container.as_ref().filter(|text| !text.is_empty());
    let container = container.map(|text| format!(" in container \"{}\"", plain(text, 40)));
    format!("{what}{}{}{}", name.unwrap_or_default(), class.unwrap_or_default(), container.unwrap_or_default())
}
