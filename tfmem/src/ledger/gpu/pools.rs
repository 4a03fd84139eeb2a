//! Pools of stream-ordered memory.

use super::Gpus;
use crate::event::{Addr, DeviceIndex, PoolRole};

/// A pool by its handle, or the one that a device has by itself, whose handle need not be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolId {
    OfDevice(Option<DeviceIndex>),
    At(Addr),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPool {
    /// `None`: not known.
    pub device: Option<DeviceIndex>,
    /// Taken and not given back.
    pub in_use: u64,
    pub allocations: u64,
    /// The most that it had in use since it was trimmed last: it has no more of the device than that.
    pub most: u64,
    /// Bytes that it keeps when a stream is waited for.
    pub threshold: u64,
    /// What the driver said last that the pool has, and when.
    pub reserved: Option<(u64, u64)>,
    /// It was destroyed and lives until nothing of it is in use.
    pub destroyed: bool,
}

impl StreamPool {
    /// What it can have of the device beside what is in use, once its streams were waited for: no more than the
    /// threshold lets it keep, and than it ever had. An upper bound, no figure of the driver's.
    #[must_use]
    pub fn kept_at_most(&self) -> u64 {
        self.most.min(self.threshold).saturating_sub(self.in_use)
    }
}

impl Gpus {
    pub(super) fn pool_heard_of(&mut self, pool: Addr, device: DeviceIndex, role: PoolRole) {
        match role {
            PoolRole::Made => {
                let device = Some(device);
                self.pools.insert(PoolId::At(pool), StreamPool { device, ..StreamPool::default() });
            }
            PoolRole::Default => {
                self.default_pools.insert(pool, device);
                self.stream_pool(pool, Some(device));
            }
            PoolRole::Current => {
                self.chosen_pools.insert(device, pool);
            }
        }
    }

    fn id(&self, pool: Addr, device: Option<DeviceIndex>) -> PoolId {
        let chosen = device.filter(|_| pool == 0).and_then(|device| self.chosen_pools.get(&device).copied());
        match chosen.unwrap_or(pool) {
            0 => PoolId::OfDevice(device),
            pool => self.default_pools.get(&pool).map_or(PoolId::At(pool), |device| PoolId::OfDevice(Some(*device))),
        }
    }

    /// The pool with this handle; 0: the one of the device. Its device, where that was not known, is this one.
    pub(super) fn stream_pool(&mut self, pool: Addr, device: Option<DeviceIndex>) -> (PoolId, &mut StreamPool) {
        let id = self.id(pool, device);
        let of = match id {
            PoolId::OfDevice(device) => device,
            // A thread's context may be on another device than a pool that was named.
            PoolId::At(_) => None,
        };
        let known = self.pools.entry(id).or_insert_with(|| StreamPool { device: of, ..StreamPool::default() });
        (id, known)
    }

    pub(super) fn pool_gone(&mut self, pool: Addr) {
        let id = self.id(pool, None);
        if let Some(known) = self.pools.get_mut(&id) {
            known.destroyed = true;
            if known.in_use == 0 {
                self.pools.remove(&id);
            }
        }
        self.chosen_pools.retain(|_, chosen| *chosen != pool);
    }

    pub(super) fn left_pool(&mut self, id: PoolId, bytes: u64) {
        let Some(pool) = self.pools.get_mut(&id) else { return };
        pool.in_use = pool.in_use.wrapping_sub(bytes);
        pool.allocations = pool.allocations.saturating_sub(1);
        if pool.destroyed && pool.allocations == 0 {
            self.pools.remove(&id);
        }
    }
}
