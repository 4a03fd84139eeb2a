//! Who held what, as a look at the process' memory found it, for the blocks that the ledger knows and for those that it
//! does not: what was there before the trace, and what was taken from `malloc` directly.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{Addr, Holder, HolderKind};
use crate::ledger::Process;
use crate::ledger::types::{Allocation, BlockLayer};
use crate::names;
use crate::report::units::plain;

#[derive(Debug, Default)]
pub(super) struct Holders {
    seen_at: Option<u64>,
    all: Arc<[Holder]>,
    by_block: FxHashMap<Addr, usize>,
    /// Bytes of each that the ledger has no block for.
    unseen: Vec<u64>,
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
        let unseen = all.iter().map(|holder| unseen(process, holder)).collect();
        Self { seen_at: Some(*seen), all: all.clone(), by_block: blocks.collect(), unseen }
    }

    /// Somebody looked.
    pub fn searched(&self) -> bool {
        !self.all.is_empty()
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

    pub fn get(&self, number: usize) -> Option<&Holder> {
        self.all.get(number)
    }

    pub fn of_kind(&self, kind: HolderKind) -> impl Iterator<Item = &Holder> {
        self.all.iter().filter(move |holder| holder.kind == kind)
    }

    /// Holders with the bytes that they hold and the ledger does not know.
    pub fn unseen(&self) -> impl Iterator<Item = (&Holder, u64)> {
        self.all.iter().zip(self.unseen.iter().copied()).filter(|(_, bytes)| *bytes > 0)
    }
}

/// A holder's bytes are those of whole blocks of the allocator below: they may be a little more than the ledger's.
fn unseen(process: &Process, holder: &Holder) -> u64 {
    let known = |&block: &Addr| {
        let of = |layer| process.allocation(layer, block).map(|a| a.bytes);
        of(BlockLayer::Chunk).or_else(|| of(BlockLayer::Heap))
    };
    let known: Vec<Option<u64>> = holder.blocks.iter().map(known).collect();
    if !holder.blocks.is_empty() && known.iter().all(Option::is_some) {
        return 0;
    }
    known.into_iter().flatten().fold(holder.bytes, u64::saturating_sub)
}

/// `variable "w" in container "localhost"`, `dataset cache`, `iterator (Shuffle)`, `Python object (…EagerTensor)`
pub(super) fn shown(holder: &Holder) -> String {
    let what = plain(&holder.what, 40);
    let name = holder.name.as_ref().map(|name| format!(" \"{}\"", plain(name, 60)));
    let class = match holder.kind {
        HolderKind::Python => Some(format!(" ({})", plain(&holder.class, 80))),
        HolderKind::Pipeline => names::dataset(&holder.class).map(|name| format!(" ({})", plain(name, 40))),
        HolderKind::Resource => holder.class.rsplit("::").next().map(|name| format!(" ({})", plain(name, 40))),
        _ => None,
    };
    let container = holder.container.as_ref().filter(|text| !text.is_empty());
    let container = container.map(|text| format!(" in container \"{}\"", plain(text, 40)));
    format!("{what}{}{}{}", name.unwrap_or_default(), class.unwrap_or_default(), container.unwrap_or_default())
}
