//! What a call means that concerns no pool of TensorFlow's.

use super::{Context, GpuBlock, Gpus};
use crate::event::{Addr, DeviceIndex, Gpu, GpuKind, GpuTaken};

impl Gpus {
    /// `false`: it was about something that is not known here.
    pub(super) fn apply(&mut self, at: u64, call: &Gpu) -> bool {
        match call {
            Gpu::Mapped { addr, bytes, handle } => {
                self.mappings.insert(*addr, (*bytes, *handle));
                self.add_reference(*handle)
            }
            Gpu::Unmapped { addr, bytes } => self.unmap(*addr, *bytes),
            Gpu::Retained { handle } => self.add_reference(*handle),
            Gpu::Context { context, device, primary } => {
                let known = self.contexts.entry(*context).or_insert(Context {
                    device: *device,
                    primary: *primary,
                    retained: 0,
                });
                (known.device, known.primary) = (*device, *primary);
                known.retained = known.retained.saturating_add(u64::from(*primary));
                true
            }
            Gpu::Pool { pool, device, role } => {
                self.pool_heard_of(*pool, *device, *role);
                true
            }
            Gpu::PoolGone { pool } => {
                self.pool_gone(*pool);
                true
            }
            Gpu::PoolTrimmed { pool, keep } => {
                let (_, pool) = self.stream_pool(*pool, None);
                pool.most = pool.most.min(*keep).max(pool.in_use);
                true
            }
            Gpu::PoolThreshold { pool, bytes } => {
                self.stream_pool(*pool, None).1.threshold = *bytes;
                true
            }
            Gpu::PoolReserved { pool, bytes } => {
                self.stream_pool(*pool, None).1.reserved = Some((at, *bytes));
                true
            }
            Gpu::Code { start, end, path } => {
                self.code.insert(*start, (*end, path.clone()));
                true
            }
            Gpu::Named { device, name } => {
                self.names.entry(*device).or_default().learn(name);
                true
            }
            Gpu::Taken(_)
            | Gpu::GivenBack { .. }
            | Gpu::ContextGone { .. }
            | Gpu::PrimaryReleased { .. }
            | Gpu::PrimaryReset { .. } => true,
        }
    }

    fn unmap(&mut self, addr: Addr, bytes: u64) -> bool {
        let end = addr.saturating_add(bytes);
        let gone: Vec<Addr> = self.mappings.range(addr..end.max(addr)).map(|(&start, _)| start).collect();
        for start in &gone {
            if let Some((_, handle)) = self.mappings.remove(start) {
                self.drop_reference(handle);
            }
        }
        !gone.is_empty()
    }

    /// The block that this call makes.
    pub(super) fn block(&mut self, taken: &GpuTaken, at: u64, tid: u32) -> GpuBlock {
        let by_context = || self.contexts.get(&taken.context).map(|context| context.device);
        let mut device = taken.device.or_else(by_context);
        let mut stream_pool = None;
        if taken.kind == GpuKind::Stream {
            let (id, pool) = self.stream_pool(taken.pool, device);
            pool.in_use = pool.in_use.wrapping_add(taken.bytes);
            pool.allocations = pool.allocations.saturating_add(1);
            pool.most = pool.most.max(pool.in_use);
            device = pool.device;
            stream_pool = Some(id);
        }
        GpuBlock {
            kind: taken.kind,
            addr: taken.addr,
            bytes: taken.bytes,
            device,
            context: taken.context,
            stream_pool,
            region_of: None,
            born: at,
            tid,
            owner: None,
            stack: None,
            caller: taken.caller,
            references: 1,
        }
    }

    /// The context's blocks.
    pub(super) fn blocks_of(&self, context: Addr) -> Vec<GpuBlock> {
        let own = |block: &&GpuBlock| block.context == context && block.kind.is_of_context();
        self.blocks.values().filter(own).copied().collect()
    }

    pub(super) fn primary(&mut self, device: DeviceIndex) -> Option<(Addr, &mut u64)> {
        let found = self.contexts.iter_mut().find(|(_, context)| context.primary && context.device == device);
        found.map(|(addr, context)| (*addr, &mut context.retained))
    }

    pub(super) fn forget_context(&mut self, context: Addr) {
        self.contexts.remove(&context);
    }
}
