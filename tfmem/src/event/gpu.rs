//! What a GPU's driver did, as the calls that succeeded tell it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Addr;

/// Numbers of devices are the program's own (`CUDA_VISIBLE_DEVICES` changes them).
pub type DeviceIndex = u32;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gpu {
    /// Memory, or what stands for it, was taken.
    Taken(GpuTaken),
    /// It was given back; the event's time is that of the call's entry.
    GivenBack {
        space: GpuSpace,
        addr: Addr,
    },
    /// Physical memory (its handle) shows at these addresses. It stays as long as it is mapped.
    Mapped {
        addr: Addr,
        bytes: u64,
        handle: Addr,
    },
    Unmapped {
        addr: Addr,
        bytes: u64,
    },
    /// The handle of physical memory was asked for once more; it must be released once more.
    Retained {
        handle: Addr,
    },
    /// A context was made, or the device's primary one was retained.
    Context {
        context: Addr,
        device: DeviceIndex,
        primary: bool,
    },
    /// A context was destroyed with all that belongs to it.
    ContextGone {
        context: Addr,
    },
    /// One retain of the device's primary context was taken back; the last one destroys it.
    PrimaryReleased {
        device: DeviceIndex,
    },
    /// All that belongs to the device's primary context was destroyed.
    PrimaryReset {
        device: DeviceIndex,
    },
    /// A pool of stream-ordered memory was made, or heard of as one that the device has by itself.
    Pool {
        pool: Addr,
        device: DeviceIndex,
        role: PoolRole,
    },
    /// It goes as soon as nothing of it is in use.
    PoolGone {
        pool: Addr,
    },
    /// All but this many bytes that are not in use went back to the device.
    PoolTrimmed {
        pool: Addr,
        keep: u64,
    },
    /// So many bytes stay in the pool when a stream is waited for.
    PoolThreshold {
        pool: Addr,
        bytes: u64,
    },
    /// What the driver says that the pool has of the device.
    PoolReserved {
        pool: Addr,
        bytes: u64,
    },
    /// Code of a library that calls the driver.
    Code {
        start: Addr,
        end: Addr,
        path: Arc<str>,
    },
    /// What a device is called: UUID, or place on the bus.
    Named {
        device: DeviceIndex,
        name: DeviceName,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTaken {
    pub kind: GpuKind,
    pub addr: Addr,
    pub bytes: u64,
    /// As the arguments say it; else the context's counts.
    pub device: Option<DeviceIndex>,
    /// Current on the thread; 0: none, or not known.
    pub context: Addr,
    /// Of stream-ordered memory; 0: the device's own.
    pub pool: Addr,
    /// Where the call returns to: code of the library that asked for the memory.
    pub caller: Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GpuKind {
    /// Linear memory, pitched or not.
    Linear,
    Array,
    Managed,
    /// Page-locked host memory.
    Host,
    /// The program's own memory, page-locked.
    Registered,
    /// In order of a stream, from a pool.
    Stream,
    /// Physical memory of a device, by its handle.
    Physical,
    /// The same of the host.
    PhysicalHost,
    /// Addresses alone.
    Addresses,
    /// Memory of another process.
    Imported,
    /// The same, by a handle that can be mapped.
    ImportedHandle,
    /// Memory that a graph takes while it runs.
    Graph,
}

/// What addresses of a kind are counted in: a handle may have the number of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GpuSpace {
    Memory,
    Host,
    Registered,
    Array,
    Handle,
    Addresses,
}

impl GpuKind {
    #[must_use]
    pub const fn space(self) -> GpuSpace {
        match self {
            Self::Linear | Self::Managed | Self::Stream | Self::Imported | Self::Graph => GpuSpace::Memory,
            Self::Host => GpuSpace::Host,
            Self::Registered => GpuSpace::Registered,
            Self::Array => GpuSpace::Array,
            Self::Physical | Self::PhysicalHost | Self::ImportedHandle => GpuSpace::Handle,
            Self::Addresses => GpuSpace::Addresses,
        }
    }

    /// Goes with its context.
    #[must_use]
    pub const fn is_of_context(self) -> bool {
        matches!(self, Self::Linear | Self::Array | Self::Managed | Self::Host | Self::Registered | Self::Imported)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRole {
    Made,
    /// The device's default one.
    Default,
    /// From now on memory without a named pool comes from it.
    Current,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceName {
    Uuid([u8; 16]),
    Bus(String),
}
