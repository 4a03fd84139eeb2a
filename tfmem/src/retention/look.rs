//! What an observation means: resident bytes of pools and blocks, and disjoint bands that add up to the RSS.

use std::sync::Arc;

use super::record::Look;
use super::residency::{intersection, merged, resident_in};
use super::watch::is_unfollowed;
use crate::event::{Addr, Mapping, MappingKind, Snapshot};
use crate::ledger::Process;
use crate::ledger::types::BlockLayer;
use crate::report::model::Bands;

/// Ranges of the address space that the ledger knew before the observation corrected it; `None` when it had nothing
/// to compare with yet, so that what was there from the start counts as known.
pub(super) type Known = Option<Vec<(Addr, u64)>>;

pub(super) fn look(process: &Process, at: u64, snapshot: &Arc<Snapshot>, known: &Known) -> Look {
    // What is not followed is not known to be nothing.
    let resident = snapshot.resident.as_deref().filter(|_| !is_unfollowed(process));
    let pools = resident.map(|r| resident_pools(process, r));
    let heap = resident.map(|r| resident_heap(process, r));
    let free = process.identity.heap.filter(|(seen, _)| *seen == at).map(|(_, heap)| heap.free_resident);
    let bands = bands(snapshot, pools.as_ref(), heap, free, known);
    Look { at, rss: rss(snapshot), bands, pools: pools.map_or_else(Vec::new, |p| p.each), snapshot: snapshot.clone() }
}

/// The whole RSS. A recording may be damaged, so that no sum may be trusted to fit.
pub(super) const fn rss(snapshot: &Snapshot) -> u64 {
    snapshot.rss_anon.saturating_add(snapshot.rss_file).saturating_add(snapshot.rss_shmem)
}

/// Resident bytes in pools: chunks, the free part of regions, and each pool's figures.
struct ResidentPools {
    in_use: u64,
    free: u64,
    each: Vec<(Addr, u64, u64)>,
}

fn resident_pools(process: &Process, resident: &[(Addr, u64)]) -> ResidentPools {
    let mut out = ResidentPools { in_use: 0, free: 0, each: Vec::new() };
    let mut chunks: Vec<(Addr, u64, u64)> = Vec::new();
    for a in process.allocations().filter(|a| a.layer == BlockLayer::Chunk) {
        let bytes = resident_in(resident, a.addr, a.bytes);
        out.in_use = out.in_use.saturating_add(bytes);
        chunks.push((a.addr, bytes, a.pool.unwrap_or(0)));
    }
    chunks.sort_unstable();
    for (&addr, pool) in &process.pools {
        let mut all = 0_u64;
        let mut used = 0_u64;
        for region in &pool.regions {
            all = all.saturating_add(resident_in(resident, region.start, region.bytes));
            // Only chunks inside a known region: a chunk elsewhere must not make free bytes vanish.
            let end = region.start.saturating_add(region.bytes);
            let first = chunks.partition_point(|&(start, ..)| start < region.start);
            used = chunks[first..]
                .iter()
                .take_while(|&&(start, ..)| start < end)
                .map(|&(_, bytes, _)| bytes)
                .fold(used, u64::saturating_add);
        }
        let free = all.saturating_sub(used);
        out.free = out.free.saturating_add(free);
        out.each.push((addr, all, free));
    }
    out
}

fn resident_heap(process: &Process, resident: &[(Addr, u64)]) -> u64 {
    process
        .allocations()
        .filter(|a| a.layer == BlockLayer::Heap && a.pool.is_none())
        .map(|a| resident_in(resident, a.addr, a.bytes))
        .fold(0, u64::saturating_add)
}

/// The bands add up to the RSS whatever the parts say: the kernel's counters lag behind the page tables by a few pages
/// for each thread, so each part takes at most what is left of the anonymous bytes.
fn bands(
    snapshot: &Snapshot,
    pools: Option<&ResidentPools>,
    heap: Option<u64>,
    free: Option<u64>,
    known: &Known,
) -> Bands {
    let mut left = snapshot.rss_anon;
    let mut take = |want: u64| {
        let got = want.min(left);
        left -= got;
        got
    };
    let pool_in_use = pools.map(|p| take(p.in_use));
    let pool_free = pools.map(|p| take(p.free));
    let heap_in_use = heap.map(&mut take);
    let heap_free = free.map(&mut take);
    let unexplained = unexplained(snapshot, known).map(&mut take);
    Bands {
        pool_in_use,
        pool_free,
        heap_in_use,
        heap_free,
        mappings_other: Some(left),
        files: Some(snapshot.rss_file.saturating_add(snapshot.rss_shmem)),
        unexplained,
    }
}

/// Resident anonymous bytes in mappings without a name that no event told of. A mapping with a name (`[heap]`,
/// `[stack]`, a file's private pages) is explained by its name.
fn unexplained(snapshot: &Snapshot, known: &Known) -> Option<u64> {
    if snapshot.mappings.is_empty() {
        return None;
    }
    let Some(known) = known else { return Some(0) };
    let known = merged(known.clone());
    let nameless = |m: &&Mapping| m.kind == MappingKind::Anonymous && m.name.is_empty();
    let bytes = snapshot
        .mappings
        .iter()
        .filter(nameless)
        .map(|m| {
            let covered = intersection(&[(m.start, m.len)], near(&known, m));
            match &snapshot.resident {
                Some(resident) => {
                    let in_known: u64 =
                        covered.iter().map(|&(s, n)| resident_in(resident, s, n)).fold(0, u64::saturating_add);
                    resident_in(resident, m.start, m.len).saturating_sub(in_known)
                }
                // Without pages the resident bytes of a mapping known in part may lie in either part.
                None => m
                    .resident_bytes
                    .min(m.len.saturating_sub(covered.iter().map(|&(_, n)| n).fold(0, u64::saturating_add))),
            }
        })
        .fold(0, u64::saturating_add);
    Some(bytes)
}

/// The known ranges that can touch a mapping, so that thousands of mappings do not cost their square.
fn near<'a>(known: &'a [(Addr, u64)], mapping: &Mapping) -> &'a [(Addr, u64)] {
    let end = mapping.start.saturating_add(mapping.len);
    let first = known.partition_point(|&(s, n)| s.saturating_add(n) <= mapping.start);
    let last = known.partition_point(|&(s, _)| s < end);
    known.get(first..last).unwrap_or_default()
}
