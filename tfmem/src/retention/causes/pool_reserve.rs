//! The free part of a BFC pool. TensorFlow keeps a pool's regions for the life of the process, so this is no leak; the
//! proof is that later work uses it again without growing it.

use super::{Claimed, Rule};
use crate::event::{Addr, Holder, HolderKind};
use crate::ledger::types::{Allocation, Pool};
use crate::report::model::{Cause, Refs, Verdict};
use crate::report::units::{bytes, counted, ordinal, plain};
use crate::retention::devices;
use crate::retention::pools::Use;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::PoolReserve, claims, verdicts };

/// Free memory is no allocation.
const fn claims(_: &Scene, _: &Allocation) -> bool {
    false
}

fn verdicts(scene: &Scene, _: &Claimed) -> Vec<Verdict> {
    // Those on a GPU are another matter.
    let host = scene.process.pools.iter().filter(|(_, pool)| devices::of(scene.process, pool).is_none());
    let seen = host.filter_map(|(&addr, pool)| verdict(scene, addr, pool));
    let older = scene.holders.of_kind(HolderKind::Pool).filter(|_| scene.is_end());
    seen.chain(older.filter_map(|holder| from_before(scene, holder))).collect()
}

/// A pool that was there before the trace: what it has free was read from its own lists.
fn from_before(scene: &Scene, holder: &Holder) -> Option<Verdict> {
    let name = holder.name.as_deref().unwrap_or("no name");
    let known = |pool: &Pool| !pool.seeded && pool.name.as_deref() == Some(name);
    if holder.bytes == 0 || holder.bytes < scene.min_bytes || scene.process.pools.values().any(known) {
        return None;
    }
    let regions = counted(holder.count, "region");
    Some(Verdict {
        cause: Cause::PoolReserve,
        bytes: holder.bytes,
        summary: format!("{} is free inside TensorFlow's pool \"{}\" ({regions}).", bytes(holder.bytes), plain(name, 40)),
        evidence: vec![
            "The pool was there before the trace; what it has free was read from its own lists. TensorFlow keeps it for the \
             life of the process."
                .to_owned(),
        ],
        gives_back: "nothing to do: only the end of the process gives it back; not a leak".to_owned(),
        refs: Refs { pools: vec![name.to_owned()], ..Refs::default() },
    })
}

/// How a pool was used and what it has free, if that is known and worth a word.
pub(super) fn free(scene: &Scene, addr: Addr, pool: &Pool) -> Option<(Use, u64)> {
    // Chunks handed out before the trace are not known, so what such a pool has free is not known either.
    if pool.seeded {
        return None;
    }
    let used = Use::of(scene.process, addr, pool, scene.baselines.get(&addr));
    let free = used.regions_bytes.saturating_sub(pool.in_use);
    (free > 0 && free >= scene.min_bytes).then_some((used, free))
}

fn verdict(scene: &Scene, addr: Addr, pool: &Pool) -> Option<Verdict> {
    let (used, free) = free(scene, addr, pool)?;
    let name = scene.pool_name(addr);
    let regions = counted(used.regions, "region");
    Some(Verdict {
        cause: Cause::PoolReserve,
        bytes: free,
        summary: format!(
            "{} is free inside TensorFlow's pool \"{}\" ({regions}, largest free chunk {}).",
            bytes(free),
            plain(&name, 40),
            bytes(used.largest_free)
        ),
        evidence: vec![reuse(scene, addr, &used), figures(pool, &used)],
        gives_back: "nothing to do: only the end of the process gives it back; not a leak".to_owned(),
        refs: Refs { pools: vec![name], ..Refs::default() },
    })
}

pub(super) fn figures(pool: &Pool, used: &Use) -> String {
    format!(
        "{} in use, {} free of {} in {}, largest free chunk {}",
        bytes(pool.in_use),
        bytes(used.regions_bytes.saturating_sub(pool.in_use)),
        bytes(used.regions_bytes),
        counted(used.regions, "region"),
        bytes(used.largest_free)
    )
}

/// Whether later work used the pool's memory again.
pub(super) fn reuse(scene: &Scene, addr: Addr, used: &Use) -> String {
    // A few bytes for bookkeeping are no proof.
    let enough = used.handed_out_since >= scene.min_bytes.max(1);
    let kept = "The pool is kept for the life of the process";
    let Some(baseline) = scene.baselines.get(&addr).filter(|_| enough) else {
        return format!("{kept}; nothing used it again yet, so reuse is not proved.");
    };
    let runs: Vec<u64> =
        scene.process.sessions.iter().filter(|s| s.runs > 0 && s.opened >= baseline.at).map(|s| s.id).collect();
    let before = scene.process.sessions.iter().filter(|s| s.runs > 0 && s.opened < baseline.at).count() as u64;
    let who = match runs.len() as u64 {
        0 => "later work".to_owned(),
        1 => format!("the {} run", ordinal(before + 1)),
        n => counted(n, "later session"),
    };
    let grew = match used.grown {
        0 => "did not grow it".to_owned(),
        n => format!("grew it by {}", bytes(n)),
    };
    format!("{kept}; {who} used it again ({} handed out) and {grew}.", bytes(used.handed_out_since))
}
