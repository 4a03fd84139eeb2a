//! Who held what, as a look at the process' memory found it, for the blocks that the ledger knows.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{Addr, Holder, HolderKind};
use crate::ledger::Process;
use crate::report::units::plain;

#[derive(Debug, Default)]
pub(super) struct Holders {
    all: Arc<[Holder]>,
    by_block: FxHashMap<Addr, usize>,
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
        Self { all: all.clone(), by_block: blocks.collect() }
    }

    /// The holder of the block that begins at this address, by its number.
    pub fn of(&self, block: Addr) -> Option<usize> {
        self.by_block.get(&block).copied()
    }

    pub fn get(&self, number: usize) -> Option<&Holder> {
        self.all.get(number)
    }

    /// Tables: what hangs on them is no allocation that the ledger knows.
    pub fn tables(&self) -> impl Iterator<Item = &Holder> {
        self.all.iter().filter(|holder| holder.kind == HolderKind::Table)
    }
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
