//! Pools at a boundary: what is in use, what is free, and whether later work used the free part again.

use super::devices;
use super::record::PoolRow;
use super::scene::{Baseline, Scene};
use crate::event::Addr;
use crate::ledger::Process;
use crate::ledger::types::Pool;
use crate::report::model;

/// What a pool consists of, and what happened to it since the first boundary that saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub regions: u64,
    pub regions_bytes: u64,
    pub largest_free: u64,
    /// Bytes handed out since that boundary, and of these the part that the memory of then must have served.
    pub handed_out_since: u64,
    pub reused: u64,
    /// Bytes of regions added since.
    pub grown: u64,
}

impl Use {
    pub fn of(process: &Process, addr: Addr, pool: &Pool, baseline: Option<&Baseline>) -> Self {
        let regions_bytes = region_bytes(pool);
        let handed_out_since = baseline.map_or(0, |b| pool.handed_out_bytes.saturating_sub(b.handed_out_bytes));
        let grown = baseline.map_or(0, |b| {
            let added = pool.regions.iter().filter(|r| r.born > b.at).map(|r| r.bytes).fold(0, u64::saturating_add);
            // A region replaced by one of its size is no growth.
            added.min(regions_bytes.saturating_sub(b.region_bytes))
        });
        Self {
            regions: pool.regions.len() as u64,
            regions_bytes,
            largest_free: process.largest_free(addr),
            handed_out_since,
            reused: handed_out_since.saturating_sub(grown),
            grown,
        }
    }
}

pub(super) fn region_bytes(pool: &Pool) -> u64 {
    pool.regions.iter().map(|r| r.bytes).fold(0, u64::saturating_add)
}

pub(super) fn rows(scene: &Scene) -> Vec<PoolRow> {
    let row = |(&addr, pool): (&Addr, &Pool)| {
        let used = Use::of(scene.process, addr, pool, scene.baselines.get(&addr));
        let made = devices::of(scene.process, pool);
        let pool = model::Pool {
            name: scene.pool_name(addr),
            class: "BFCAllocator".to_owned(),
            device: made.and_then(|made| made.device),
            memory: made.map(|made| made.layer),
            idle_regions_bytes: made.map(|_| devices::idle_regions(scene.process, addr, pool).1),
            handle_tables_bytes: made.map(|_| devices::handle_tables(scene.process, pool)),
            regions: used.regions,
            regions_bytes: used.regions_bytes,
            in_use_bytes: pool.in_use,
            largest_free_bytes: used.largest_free,
            reused_bytes: used.reused,
            grown_bytes: used.grown,
            resident_bytes: None,
            free_resident_bytes: None,
        };
        PoolRow { addr, pool }
    };
    scene.process.pools.iter().map(row).collect()
}
