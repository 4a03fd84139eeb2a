//! The functions around the pools' chunks.

/// The functions whose code says how a file's pools report their chunks (tsl/framework/bfc_allocator.cc), in one
/// namespace.
#[derive(Clone, Copy, Debug)]
pub struct PoolSymbols {
    /// `AddTraceMe(name, chunk, requested, allocated)`
    pub long: &'static str,
    /// `AddTraceMe(name, chunk)`
    pub short: &'static str,
    /// `AllocateRawInternal`
    pub take: &'static str,
    /// `DeallocateRaw`
    pub give_back: &'static str,
    /// `DeallocateRawInternal`
    pub give_back_internal: &'static str,
    /// `RegionManager::RegionFor`
    pub region_for: &'static str,
    /// `ChunkFromHandle`
    pub chunk_from_handle: &'static str,
}

impl PoolSymbols {
    #[must_use]
    pub const fn all(&self) -> [&'static str; 7] {
        [
            self.long,
            self.short,
            self.take,
            self.give_back,
            self.give_back_internal,
            self.region_for,
            self.chunk_from_handle,
        ]
    }
}

pub(super) const TSL: PoolSymbols = PoolSymbols {
    long: "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
    short: "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKv",
    take: "_ZN3tsl12BFCAllocator19AllocateRawInternalEmmbm",
    give_back: "_ZN3tsl12BFCAllocator13DeallocateRawEPv",
    give_back_internal: "_ZN3tsl12BFCAllocator21DeallocateRawInternalEPv",
    region_for: "_ZNK3tsl12BFCAllocator13RegionManager9RegionForEPKv",
    chunk_from_handle: "_ZNK3tsl12BFCAllocator15ChunkFromHandleEm",
};

pub(super) const BEFORE: PoolSymbols = PoolSymbols {
    long: "_ZN10tensorflow12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
    short: "_ZN10tensorflow12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKv",
    take: "_ZN10tensorflow12BFCAllocator19AllocateRawInternalEmmbm",
    give_back: "_ZN10tensorflow12BFCAllocator13DeallocateRawEPv",
    give_back_internal: "_ZN10tensorflow12BFCAllocator21DeallocateRawInternalEPv",
    region_for: "_ZNK10tensorflow12BFCAllocator13RegionManager9RegionForEPKv",
    chunk_from_handle: "_ZNK10tensorflow12BFCAllocator15ChunkFromHandleEm",
};

/// The newer namespace first.
pub const POOLS: &[PoolSymbols] = &[TSL, BEFORE];
