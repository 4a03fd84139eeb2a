//! What the program freed and the C allocator keeps. It is no leak: later allocations use it again. Most of it can be
//! given back by `malloc_trim`, as far as nothing in use lies on the same pages.

use super::{Claimed, Rule};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Refs, Verdict};
use crate::report::units::bytes;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::HeapReserve, claims, verdicts };

/// A walk through the heap so long before the end still tells of the end.
const NEAR_NS: u64 = 1_000_000_000;

/// Free memory is no allocation.
const fn claims(_: &Scene, _: &Allocation) -> bool {
    false
}

fn verdicts(scene: &Scene, _: &Claimed) -> Vec<Verdict> {
    let Some((seen, heap)) = scene.process.identity.heap else { return Vec::new() };
    // What was free before the boundary may be in use or gone behind it.
    let near = seen.saturating_add(NEAR_NS) >= scene.at;
    // Stopped at its very end, the process did nothing more, however long the look took.
    let last = scene.process.identity.snapshot.as_ref().is_some_and(|(at, look)| *at == seen && look.at_exit);
    let tells = seen >= scene.at || (scene.is_end() && (near || last));
    // Free bytes whose pages were given back are nobody's memory.
    let held = heap.free_resident.min(heap.free);
    if !tells || held == 0 || held < scene.min_bytes {
        return Vec::new();
    }
    vec![Verdict {
        cause: Cause::HeapReserve,
        bytes: held,
        summary: format!("{} was freed by the program and is kept by the C allocator for later use.", bytes(held)),
        evidence: vec![
            format!(
                "malloc has {} in use and {} free, {} of that resident",
                bytes(heap.in_use),
                bytes(heap.free),
                bytes(heap.free_resident)
            ),
            format!(
                "malloc_trim would give back {}; {} lies on pages with blocks in use, or at the end of a thread's arena",
                bytes(heap.trimmable),
                bytes(heap.free_resident.saturating_sub(heap.trimmable))
            ),
        ],
        gives_back: "`malloc_trim(0)` (in Python: `ctypes.CDLL(\"libc.so.6\").malloc_trim(0)`), or an allocator that \
                     gives pages back by itself; not a leak"
            .to_owned(),
        refs: Refs::default(),
    }]
}
