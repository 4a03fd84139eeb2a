//! Calls of a GPU's driver in a process: its blocks get an owner and, where a pool of TensorFlow's extends, become
//! regions of that pool.

use super::GpuBlock;
use crate::event::{Addr, DeviceIndex, Event, Gpu, GpuSpace, GpuTaken, Origin};
use crate::ledger::process::Process;
use crate::ledger::types::Region;

impl Process {
    pub(in crate::ledger) fn gpu_call(&mut self, event: &Event, call: &Gpu) {
        self.gpu.seen = true;
        match call {
            Gpu::Taken(taken) => self.gpu_taken(event, taken),
            Gpu::GivenBack { space, addr } => self.gpu_given_back(event.at, *space, *addr),
            Gpu::ContextGone { context } => {
                self.end_blocks_of(*context, event.at);
                self.gpu.forget_context(*context);
            }
            Gpu::PrimaryReset { device } => self.primary_ends(*device, event.at, false),
            Gpu::PrimaryReleased { device } => self.primary_ends(*device, event.at, true),
            other => {
                if !self.gpu.apply(event.at, other) {
                    let attached = self.attached();
                    self.unknown_free(attached);
                }
            }
        }
    }

    fn gpu_taken(&mut self, event: &Event, taken: &GpuTaken) {
        // A null address: nothing was asked for.
        if taken.addr == 0 {
            return;
        }
        let mut block = self.gpu.block(taken, event.at, event.tid);
        block.stack = event.stack;
        block.owner = self.owner(event.tid, &Origin::default());
        if block.layer().is_some() && matches!(taken.kind.space(), GpuSpace::Memory | GpuSpace::Host) {
            block.region_of = self.extending(event.tid, taken.addr);
        }
        if let Some(old) = self.gpu.insert(block) {
            self.anomalies.reused_alive += 1;
            self.gpu_region_left(&old);
        }
        if let Some(pool) = block.region_of {
            let pool = self.pool(pool, event.at);
            pool.extended += 1;
            let i = pool.regions.partition_point(|r| r.start < block.addr);
            pool.regions.insert(i, Region { start: block.addr, bytes: block.bytes, born: event.at });
        }
    }

    fn gpu_given_back(&mut self, at: u64, space: GpuSpace, addr: Addr) {
        if addr == 0 {
            return;
        }
        if space == GpuSpace::Handle {
            if !self.gpu.drop_reference(addr) {
                self.unknown_gpu_free();
            }
            return;
        }
        let key = (space, addr);
        match self.gpu.blocks.get(&key).map(|block| block.born) {
            // Told late: the address is another block's by now, and that one's birth ended this one.
            Some(born) if born > at => {}
            Some(_) => {
                if let Some(block) = self.gpu.remove(key) {
                    self.gpu_region_left(&block);
                }
            }
            None => self.unknown_gpu_free(),
        }
    }

    fn unknown_gpu_free(&mut self) {
        let attached = self.attached();
        self.unknown_free(attached);
    }

    fn end_blocks_of(&mut self, context: Addr, at: u64) {
        for block in self.gpu.blocks_of(context) {
            // What was taken while the call ended the context is not its.
            if block.born <= at && self.gpu.remove((block.kind.space(), block.addr)).is_some() {
                self.gpu_region_left(&block);
            }
        }
    }

    /// `released`: only the last release ends what belongs to the context.
    fn primary_ends(&mut self, device: DeviceIndex, at: u64, released: bool) {
        // One that was retained before the trace is not known, and nothing is known to be its.
        let Some((context, retained)) = self.gpu.primary(device) else { return };
        if released {
            let left = retained.saturating_sub(1);
            if std::mem::replace(retained, left) == 0 || left > 0 {
                return;
            }
        }
        self.end_blocks_of(context, at);
    }

    fn gpu_region_left(&mut self, block: &GpuBlock) {
        if let Some(pool) = block.region_of {
            self.region_is_gone(pool, block.addr, block.bytes);
        }
    }
}
