//! Memory that was there before the trace began: nobody saw who asked for it.

use super::{Claimed, Rule};
use crate::ledger::types::{Allocation, Pool};
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, counted, plain};
use crate::retention::pools::region_bytes;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::BeforeAttach, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    scene.before_attach(a.born)
}

/// Bytes of a pool's regions that no chunk seen by the trace takes: handed out before, or free.
fn unseen(pool: &Pool) -> u64 {
    region_bytes(pool).saturating_sub(pool.in_use)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let seeded: Vec<(String, &Pool)> = scene
        .process
        .pools
        .iter()
        // A pool is nobody's in particular: it is spoken of once, at the end.
        .filter(|(_, pool)| scene.is_end() && pool.seeded && unseen(pool) > 0)
        .map(|(&addr, pool)| (scene.pool_name(addr), pool))
        .collect();
    // The blocks claimed are chunks in use, and what they take is not in `unseen`.
    let in_pools = seeded.iter().map(|(_, pool)| unseen(pool)).fold(claimed.bytes, u64::saturating_add);
    // The pools' pages are among those that were found: the larger figure holds the smaller one.
    let total = scene.from_before.map_or(in_pools, |from| from.still.max(in_pools));
    if total == 0 {
        return Vec::new();
    }
    let looked = scene.from_before.map(|from| {
        format!(
            "{} of the process's own memory was resident when the trace began; {} of it still is and was not handed \
             out since",
            bytes(from.found),
            bytes(from.still)
        )
    });
    let mut evidence: Vec<String> = looked.into_iter().collect();
    evidence.extend(seeded.iter().map(|(name, pool)| {
        format!(
            "pool \"{}\" was there before the trace: {} in {}, of which the trace saw {} handed out",
            plain(name, 40),
            bytes(region_bytes(pool)),
            counted(pool.regions.len() as u64, "region"),
            bytes(pool.in_use)
        )
    }));
    if claimed.bytes > 0 {
        let blocks = claimed.groups.iter().map(|g| g.count).sum();
        evidence.push(format!("{} in {} made before the trace", bytes(claimed.bytes), counted(blocks, "block")));
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
