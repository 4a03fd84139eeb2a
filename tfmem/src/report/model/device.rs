//! Memory of GPUs.

use serde::{Deserialize, Serialize};

/// A device that the process used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// As the program numbers it (`CUDA_VISIBLE_DEVICES` changes that); `null`: memory of a device that is not known.
    pub index: Option<u32>,
    /// As the program itself asked for it.
    pub uuid: Option<String>,
    #[serde(default)]
    pub bus_id: Option<String>,
    /// What NVML says that the process uses; `null`: nobody asked.
    pub nvml_bytes: Option<u64>,
    /// What the driver's calls tell: the known bands but for `context` and `unexplained`.
    pub explained_bytes: u64,
    pub unexplained_bytes: Option<u64>,
    #[serde(default)]
    pub bands: DeviceBands,
    /// Pools of stream-ordered memory.
    #[serde(default)]
    pub stream_pools: Vec<StreamPool>,
}

/// Bytes of a device in disjoint bands. `null`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBands {
    /// Chunks of TensorFlow's pools, and stream-ordered memory.
    pub pool_in_use: Option<u64>,
    /// The rest of the regions of TensorFlow's pools.
    pub pool_free: Option<u64>,
    /// Taken from the driver by anybody else: cuDNN, cuBLAS, NCCL, the program itself.
    pub outside_pool: Option<u64>,
    /// The driver's context and what it loaded.
    pub context: Option<u64>,
    pub unexplained: Option<u64>,
}

/// What was freed in order of a stream is free in its pool, not on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPool {
    /// `null`: the device's own.
    pub handle: Option<u64>,
    pub in_use_bytes: u64,
    pub allocations: u64,
    /// An upper bound of what it keeps beside that: no call tells the figure itself.
    pub kept_at_most_bytes: u64,
    pub release_threshold_bytes: u64,
    /// What the driver answered when the program asked last; `null`: it did not ask.
    pub reserved_bytes: Option<u64>,
}
