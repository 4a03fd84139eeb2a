//! Records that could not be sent, by process: whose figures they make inexact, and by how much.

/// What a lost record told of.
pub mod what {
    pub const CHUNK_TAKEN: u32 = 1;
    pub const CHUNK_GIVEN_BACK: u32 = 2;
    pub const HEAP_TAKEN: u32 = 3;
    pub const HEAP_GIVEN_BACK: u32 = 4;
    /// A mapping made, moved or undone.
    pub const MAPPING: u32 = 5;
    /// A call of the catalogue entered or left.
    pub const CALL: u32 = 6;
    /// Memory of a GPU taken or given back.
    pub const GPU: u32 = 7;
    /// The last of them.
    pub const LAST: u32 = GPU;
}

/// Key of the `LOST` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub pid: u32,
    /// One of [`what`].
    pub what: u32,
}

/// Running totals since the programs were loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub records: u64,
    /// Bytes of the blocks they told of, without those of unknown size.
    pub bytes: u64,
    /// Of the records, those whose block's size is not known.
    pub unsized_records: u64,
}

/// One part in so many of the buffer takes no frequent records: it is there for the rare ones (sessions, processes), so
/// that a storm of allocations costs no boundary.
pub const RESERVED_SHARE: u64 = 16;

const _: () = assert!(size_of::<Key>() == 8);
const _: () = assert!(size_of::<Lost>() == 24);

#[cfg(feature = "user")]
mod user {
    // SAFETY: `#[repr(C)]`, integers only, no padding; any bit pattern is valid.
    unsafe impl aya::Pod for super::Key {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::Lost {}
}
