//! Memory that was there before the trace began: nobody saw who asked for it.

use super::{Claimed, Rule, held};
use crate::event::{Addr, HolderKind, MappingKind};
use crate::ledger::types::{Allocation, Pool};
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, counted, plain};
use crate::retention::pools::region_bytes;
use crate::retention::residency::{merged, resident_in};
use crate::retention::scene::Scene;
use crate::retention::watch::is_unfollowed;

pub(super) const RULE: Rule = Rule { cause: Cause::BeforeAttach, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    scene.before_attach(a.born)
}

/// Bytes of a pool's regions that no chunk seen by the trace takes: handed out before, or free.
fn unseen(pool: &Pool) -> u64 {
    region_bytes(pool).saturating_sub(pool.in_use)
}

/// Bytes in anonymous mappings that were there before the trace, without what the trace saw handed out in them and
/// without pools; `true`: only what is resident was counted.
fn mapped(scene: &Scene) -> (u64, bool) {
    if !scene.is_end() || !scene.attached() || is_unfollowed(scene.process) {
        return (0, false);
    }
    let process = scene.process;
    let blocks = process.allocations().map(|block| (block.addr, block.bytes));
    let regions = process.pools.values().flat_map(|pool| &pool.regions).map(|region| (region.start, region.bytes));
    let told = merged(blocks.chain(regions).collect());
    let resident = process.identity.snapshot.as_ref().and_then(|(_, snapshot)| snapshot.resident.as_ref());
    let old = process
        .memory_map()
        .iter()
        .filter(|range| range.born.is_none() && matches!(range.kind, MappingKind::Anonymous | MappingKind::Heap));
    let bytes = old.flat_map(|range| without(range.start, range.end(), &told)).map(|(start, len)| match resident {
        Some(resident) => resident_in(resident, start, len),
        None => len,
    });
    (bytes.fold(0, u64::saturating_add), resident.is_some())
}

/// The parts of a range that none of `taken` (sorted, disjoint) covers.
fn without(start: Addr, end: Addr, taken: &[(Addr, u64)]) -> Vec<(Addr, u64)> {
    let mut parts = Vec::new();
    let mut at = start;
    let first = taken.partition_point(|&(from, len)| from.saturating_add(len) <= start);
    for &(from, len) in taken.iter().skip(first).take_while(|&&(from, _)| from < end) {
        if from > at {
            parts.push((at, from - at));
        }
        at = at.max(from.saturating_add(len));
    }
    if at < end {
        parts.push((at, end - at));
    }
    parts
}

/// Bytes that were there before and whose holder was looked for in vain. Where nobody looked, all else counts.
fn unheld(scene: &Scene) -> u64 {
    if !scene.attached() || !scene.is_end() {
        return 0;
    }
    let unheld = scene
        .holders
        .unseen()
        .filter(|(holder, _)| holder.kind == HolderKind::Other && held::cause(scene, holder).is_none());
    unheld.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let searched = scene.holders.searched();
    let seeded: Vec<(String, &Pool)> = scene
        .process
        .pools
        .iter()
        // A pool is nobody's in particular: it is spoken of once, at the end.
        .filter(|(_, pool)| scene.is_end() && pool.seeded && !searched && unseen(pool) > 0)
        .map(|(&addr, pool)| (scene.pool_name(addr), pool))
        .collect();
    let (mapped, resident) = if searched { (0, false) } else { mapped(scene) };
    let unheld = unheld(scene);
    // The blocks claimed are chunks in use, and what they take is neither in `unseen` nor in `mapped`.
    let total = seeded.iter().map(|(_, pool)| unseen(pool)).fold(claimed.bytes, u64::saturating_add);
    let total = total.saturating_add(mapped).saturating_add(unheld);
    if total == 0 || (searched && total < scene.min_bytes) {
        return Vec::new();
    }
    let mut evidence: Vec<String> = seeded
        .iter()
        .map(|(name, pool)| {
            format!(
                "pool \"{}\" was there before the trace: {} in {}, of which the trace saw {} handed out",
                plain(name, 40),
                bytes(region_bytes(pool)),
                counted(pool.regions.len() as u64, "region"),
                bytes(pool.in_use)
            )
        })
        .collect();
    if claimed.bytes > 0 {
        let blocks = claimed.groups.iter().map(|g| g.count).sum();
        evidence.push(format!("{} in {} made before the trace", bytes(claimed.bytes), counted(blocks, "block")));
    }
    if mapped > 0 {
        let what = if resident { "resident" } else { "mapped (how much of it is resident is not known)" };
        evidence.push(format!("{} {what} in anonymous mappings made before the trace", bytes(mapped)));
    }
    if unheld > 0 {
        evidence.push(format!(
            "{} of tensors' data made before the trace, whose holder was looked for in vain",
            bytes(unheld)
        ));
    }
    let mut refs = claimed.refs();
    refs.pools = seeded.into_iter().map(|(name, _)| name).collect();
    vec![Verdict {
        cause: Cause::BeforeAttach,
        bytes: total,
        summary: format!("{} was there before the trace began; who holds it is not known.", bytes(total)),
        evidence,
        gives_back: "trace the program from its start (`tfmem run`) to learn who holds it".to_owned(),
        refs,
    }]
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn what_is_taken_is_left_out() {
        assert_eq!(without(100, 200, &[]), [(100, 100)]);
        assert_eq!(without(100, 200, &[(50, 60), (120, 10), (190, 50)]), [(110, 10), (130, 60)]);
        assert_eq!(without(100, 200, &[(0, 1000)]), []);
        assert_eq!(without(100, 200, &[(0, 50), (300, 5)]), [(100, 100)]);
    }
}
