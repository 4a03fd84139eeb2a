//! What verdicts said of the future, compared with what came: a pool is used again without growing; `malloc_trim` gives
//! back what was said.

use super::record::Record;
use crate::event::HeapSeen;
use crate::report::model::{Cause, Prediction};
use crate::report::units::{bytes, plain};

/// A walk through the heap at a boundary.
pub(super) type Walk = (u64, HeapSeen);

/// Hits and misses; what has not come yet is neither.
pub(super) fn checked(records: &[Record], min_bytes: u64) -> Vec<Prediction> {
    let mut all = pools(records, min_bytes);
    all.extend(records.windows(2).filter_map(|pair| trimmed(pair.first()?, pair.get(1)?, min_bytes)));
    all
}

/// The first verdict on each pool against the last state of the pool.
fn pools(records: &[Record], min_bytes: u64) -> Vec<Prediction> {
    let Some(last) = records.last() else { return Vec::new() };
    let first = |name: &str| {
        let about = records.iter().filter_map(|r| {
            let said =
                r.verdicts.iter().find(|v| v.cause == Cause::PoolReserve && v.refs.pools.iter().any(|p| p == name))?;
            Some((r.id, said.bytes))
        });
        about.into_iter().next().filter(|(id, _)| *id != last.id)
    };
    last.pools
        .iter()
        .filter(|row| row.pool.reused_bytes >= min_bytes.max(1) || row.pool.grown_bytes > 0)
        .filter_map(|row| {
            let (boundary, predicted_bytes) = first(&row.pool.name)?;
            let hit = row.pool.grown_bytes == 0;
            let came = if hit {
                format!("it was ({} handed out), and the pool did not grow", bytes(row.pool.reused_bytes))
            } else {
                format!("it grew by {} all the same", bytes(row.pool.grown_bytes))
            };
            Some(Prediction {
                boundary,
                cause: Cause::PoolReserve,
                predicted_bytes,
                happened_bytes: row.pool.reused_bytes,
                hit,
                summary: format!(
                    "{} free in pool \"{}\" would be used again: {came}.",
                    bytes(predicted_bytes),
                    plain(&row.pool.name, 40)
                ),
            })
        })
        .collect()
}

/// Between two walks pages were given back, and hardly anything was taken: a trim.
fn trimmed(before: &Record, after: &Record, min_bytes: u64) -> Option<Prediction> {
    let ((_, old), (_, new)) = (before.heap?, after.heap?);
    let given = old.free_resident.checked_sub(new.free_resident)?;
    let taken = new.in_use.saturating_sub(old.in_use);
    // What the program takes is given to it, not to the system.
    if old.trimmable < min_bytes.max(1) || given < old.trimmable / 2 || taken > given / 10 {
        return None;
    }
    let hit = given.abs_diff(old.trimmable) <= old.trimmable / 10;
    Some(Prediction {
        boundary: before.id,
        cause: Cause::HeapReserve,
        predicted_bytes: old.trimmable,
        happened_bytes: given,
        hit,
        summary: format!("malloc_trim would give back {}: {} was given back.", bytes(old.trimmable), bytes(given)),
    })
}
