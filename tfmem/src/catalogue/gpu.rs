//! The calls of CUDA's driver that take memory, give it back, or say whose it is: the only place that knows their names
//! and arguments.
//!
//! Names and arguments are those of CUDA's public header `cuda.h` (12.5; the driver API's reference is at
//! <https://docs.nvidia.com/cuda/cuda-driver-api/>). The names are the library's: the header maps `cuMemAlloc` to
//! `cuMemAlloc_v2`. Spellings without a number are listed where they take the same arguments; those from before CUDA 3.2
//! with addresses of 32 bits are not followed.
//!
//! The driver is the one layer that is counted. The runtime (`libcudart`) and the trampolines inside TensorFlow's own
//! library end in it, and so does what `cuGetProcAddress` hands out.

mod table;

use tfmem_common::gpu::{Cookie, Effect, Structure};
use tfmem_common::wire;

use crate::event::{DeviceName, Gpu, GpuKind, GpuSpace, GpuTaken, PoolRole};

pub use table::ENTRIES;

/// Name in reports.
pub const FRAMEWORK: &str = "cuda";

/// The driver is known by the name it gives itself: other libraries export trampolines under the names of its functions.
pub const SONAME: &str = "libcuda.so.";

/// What a library of this name must have, or the report is blind to the GPU.
pub const ESSENTIAL: &[&str] = &["cuMemAlloc_v2", "cuMemFree_v2"];

/// BPF programs for the entry and the return.
pub const PROGRAMS: [&str; 2] = ["gpu_enter", "gpu_leave"];

/// One call. The number on the wire is its place in the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub names: &'static [&'static str],
    pub meaning: Meaning,
    /// Arguments that point to results.
    pub results: [Option<u8>; 2],
    pub structure: Option<Structure>,
    pub effect: Effect,
    /// Registers that the probe needs as they were at entry.
    pub registers: u8,
    pub frequent: bool,
}

/// Where a size is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Argument(u8),
    /// The second result is the pitch, this argument the height.
    Pitch(u8),
    /// `CUDA_ARRAY_DESCRIPTOR`: width, height, format and channels
    Array,
    /// `CUDA_ARRAY3D_DESCRIPTOR`: width, height, depth, format and channels
    Array3D,
    /// The same with this argument's number of levels, each half as large as the one before
    Levels(u8),
    /// A word of the structure
    Word(u8),
    /// Nobody says.
    Unknown,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Result,
    Argument(u8),
    /// A word of the structure
    Word(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Taken(GpuKind, Place, Size),
    /// As above, from the pool in this argument.
    TakenFromPool(Place, Size, u8),
    /// `cuMemCreate`: what the structure's location says
    Created,
    GivenBack(GpuSpace, u8),
    Mapped,
    Unmapped,
    Retained,
    /// The result is a context on the device in this argument; `true`: its primary one
    Context(u8, bool),
    ContextGone,
    PrimaryReleased,
    PrimaryReset,
    /// Only its effect on the thread's contexts counts.
    Current,
    PoolMade,
    PoolGone,
    PoolTrimmed,
    PoolAttribute,
    PoolOfDevice,
    PoolChosen,
    Uuid,
    Bus,
}

/// `CUmemPool_attribute`: release threshold, and bytes that the pool has of the device
const RELEASE_THRESHOLD: u64 = 4;
const RESERVED_NOW: u64 = 5;
/// `CUmemLocationType`: on a device
const ON_DEVICE: u32 = 1;

impl Entry {
    #[must_use]
    pub fn cookie(&self, number: usize) -> u64 {
        let from_entry = matches!(
            self.meaning,
            Meaning::GivenBack(..)
                | Meaning::Unmapped
                | Meaning::ContextGone
                | Meaning::PrimaryReleased
                | Meaning::PrimaryReset
        );
        let quiet = self.meaning == Meaning::Current;
        let Self { results, structure, effect, frequent, .. } = *self;
        let call = u8::try_from(number).unwrap_or(u8::MAX);
        Cookie { call, results, structure, effect, quiet, from_entry, frequent }.pack()
    }
}

/// What a record says; `None`: nothing, or it could not be read.
#[must_use]
pub fn event(record: &wire::Gpu) -> Option<Gpu> {
    let entry = ENTRIES.get(record.call as usize)?;
    if record.unread != 0 {
        return None;
    }
    Some(match entry.meaning {
        Meaning::Taken(kind, place, size) => taken(record, kind, place, size, 0)?,
        Meaning::TakenFromPool(place, size, pool) => {
            taken(record, GpuKind::Stream, place, size, argument(record, pool)?)?
        }
        Meaning::Created => created(record)?,
        Meaning::GivenBack(space, n) => Gpu::GivenBack { space, addr: argument(record, n)? },
        Meaning::Mapped => Gpu::Mapped { addr: record.args[0], bytes: record.args[1], handle: record.args[3] },
        Meaning::Unmapped => Gpu::Unmapped { addr: record.args[0], bytes: record.args[1] },
        Meaning::Retained => Gpu::Retained { handle: record.results[0] },
        Meaning::Context(device, primary) => {
            Gpu::Context { context: record.results[0], device: argument(record, device)? as u32, primary }
        }
        Meaning::ContextGone => Gpu::ContextGone { context: record.args[0] },
        Meaning::PrimaryReleased => Gpu::PrimaryReleased { device: record.args[0] as u32 },
        Meaning::PrimaryReset => Gpu::PrimaryReset { device: record.args[0] as u32 },
        Meaning::Current => return None,
        Meaning::PoolMade => {
            let (kind, device) = location(record.structure[1]);
            if kind != ON_DEVICE {
                return None;
            }
            Gpu::Pool { pool: record.results[0], device, role: PoolRole::Made }
        }
        Meaning::PoolGone => Gpu::PoolGone { pool: record.args[0] },
        Meaning::PoolTrimmed => Gpu::PoolTrimmed { pool: record.args[0], keep: record.args[1] },
        Meaning::PoolAttribute => attribute(record)?,
        Meaning::PoolOfDevice => {
            Gpu::Pool { pool: record.results[0], device: record.args[1] as u32, role: PoolRole::Default }
        }
        Meaning::PoolChosen => {
            Gpu::Pool { pool: record.args[1], device: record.args[0] as u32, role: PoolRole::Current }
        }
        Meaning::Uuid => {
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&record.structure[0].to_le_bytes());
            uuid[8..].copy_from_slice(&record.structure[1].to_le_bytes());
            Gpu::Named { device: record.args[1] as u32, name: DeviceName::Uuid(uuid) }
        }
        Meaning::Bus => Gpu::Named { device: record.args[2] as u32, name: DeviceName::Bus(bus(record)) },
    })
}

fn argument(record: &wire::Gpu, n: u8) -> Option<u64> {
    record.args.get(usize::from(n)).copied()
}

fn taken(record: &wire::Gpu, kind: GpuKind, place: Place, size: Size, pool: u64) -> Option<Gpu> {
    let addr = match place {
        Place::Result => record.results[0],
        Place::Argument(n) => argument(record, n)?,
        Place::Word(n) => *record.structure.get(usize::from(n))?,
    };
    let (context, caller) = (record.context, record.caller);
    let bytes = bytes(record, size)?;
    Some(Gpu::Taken(GpuTaken { kind, addr, bytes, device: None, context, pool, caller }))
}

fn bytes(record: &wire::Gpu, size: Size) -> Option<u64> {
    let [width, height, third, fourth, _] = record.structure;
    Some(match size {
        Size::Argument(n) => argument(record, n)?,
        Size::Pitch(n) => record.results[1].saturating_mul(argument(record, n)?),
        Size::Array => array([width, height, 1], third),
        Size::Array3D => array([width, height, third], fourth),
        Size::Levels(n) => levels([width, height, third], fourth, argument(record, n)? as u32),
        Size::Word(n) => *record.structure.get(usize::from(n))?,
        Size::Unknown => 0,
    })
}

/// Bytes of an array's elements (what the driver adds for alignment is not told). `element`: format, and channels in the
/// upper half.
fn array(extents: [u64; 3], element: u64) -> u64 {
    let channels = element >> 32;
    extents
        .iter()
        .fold(channels.saturating_mul(format_bytes(element as u32)), |bytes, &n| bytes.saturating_mul(n.max(1)))
}

fn levels(mut extents: [u64; 3], element: u64, levels: u32) -> u64 {
    // 2^32 elements wide is more than any device takes.
    (0..levels.min(32)).fold(0, |sum: u64, _| {
        let bytes = array(extents, element);
        extents = extents.map(|n| (n / 2).max(1));
        sum.saturating_add(bytes)
    })
}

/// `CUarray_format`: 8, 16 and 32 bits, with and without sign, half, float
const fn format_bytes(format: u32) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

/// `CUmemLocation`: type, number
const fn location(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// `CUmemAllocationProp`: type and handle types, then the location.
fn created(record: &wire::Gpu) -> Option<Gpu> {
    let (place, device) = location(record.structure[1]);
    let on_device = place == ON_DEVICE;
    Some(Gpu::Taken(GpuTaken {
        kind: if on_device { GpuKind::Physical } else { GpuKind::PhysicalHost },
        addr: record.results[0],
        bytes: argument(record, 1)?,
        device: on_device.then_some(device),
        context: record.context,
        pool: 0,
        caller: record.caller,
    }))
}

const fn attribute(record: &wire::Gpu) -> Option<Gpu> {
    let (pool, bytes) = (record.args[0], record.structure[0]);
    match record.args[1] as u32 as u64 {
        RELEASE_THRESHOLD => Some(Gpu::PoolThreshold { pool, bytes }),
        RESERVED_NOW => Some(Gpu::PoolReserved { pool, bytes }),
        _ => None,
    }
}

/// `0000:00:1e.0`, ended by a zero byte
fn bus(record: &wire::Gpu) -> String {
    let bytes: Vec<u8> = record.structure.iter().take(2).flat_map(|word| word.to_le_bytes()).collect();
    let text: Vec<u8> = bytes.into_iter().take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tfmem_common::gpu::Cookie;
    use tfmem_common::wire::{Header, kind};

    use super::*;

    fn record(name: &str) -> wire::Gpu {
        let call = ENTRIES.iter().position(|entry| entry.names.contains(&name)).unwrap() as u32;
        let header = Header { kind: kind::GPU, version: 1, _pad: 0, at: 1, pid: 1, tid: 1 };
        let (args, results, structure) = ([10, 11, 12, 13, 14, 15], [20, 21], [30, 31, 32, 33, 34]);
        wire::Gpu { header, call, unread: 0, args, results, structure, context: 7, caller: 8, stack: 0 }
    }

    #[test]
    fn every_name_is_there_once_and_every_cookie_survives() {
        let mut names = BTreeSet::new();
        for (number, entry) in ENTRIES.iter().enumerate() {
            assert!(entry.names.iter().all(|name| names.insert(name)), "{:?}", entry.names);
            let cookie = Cookie::unpack(entry.cookie(number));
            assert_eq!(usize::from(cookie.call), number);
            assert_eq!((cookie.results, cookie.structure), (entry.results, entry.structure));
        }
        assert!(ENTRIES.len() < usize::from(u8::MAX));
        assert!(ESSENTIAL.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn sizes_are_where_the_header_says() {
        let bytes = |record: &wire::Gpu| match event(record) {
            Some(Gpu::Taken(taken)) => taken.bytes,
            other => panic!("{other:?}"),
        };
        assert_eq!(bytes(&record("cuMemAlloc_v2")), 11);
        assert_eq!(bytes(&record("cuMemAllocPitch_v2")), 21 * 13);
        // 64 × 32 elements of 4 channels of 16 bits
        let array = wire::Gpu { structure: [64, 32, 0x10 | 4 << 32, 0, 0], ..record("cuArrayCreate_v2") };
        assert_eq!(bytes(&array), 64 * 32 * 4 * 2);
        // A depth of 0 is a flat one.
        let array = wire::Gpu { structure: [64, 32, 0, 0x20 | 1 << 32, 0], ..record("cuArray3DCreate_v2") };
        assert_eq!(bytes(&array), 64 * 32 * 4);
        let args = [10, 11, 3, 13, 14, 15];
        let array = wire::Gpu { structure: [8, 8, 0, 1 | 1 << 32, 0], args, ..record("cuMipmappedArrayCreate") };
        assert_eq!(bytes(&array), 64 + 16 + 4);
        let array = wire::Gpu { structure: [u64::MAX; 5], ..record("cuArray3DCreate_v2") };
        assert_eq!(bytes(&array), u64::MAX);
    }

    #[test]
    fn what_could_not_be_read_says_nothing() {
        assert_eq!(event(&wire::Gpu { unread: 1, ..record("cuMemAlloc_v2") }), None);
        assert_eq!(event(&wire::Gpu { call: 250, ..record("cuMemAlloc_v2") }), None);
    }

    #[test]
    fn physical_memory_is_where_its_location_says() {
        let on = |place: u64| wire::Gpu { structure: [1, place | 3 << 32, 0, 0, 0], ..record("cuMemCreate") };
        let Some(Gpu::Taken(taken)) = event(&on(1)) else { panic!() };
        assert_eq!((taken.kind, taken.device, taken.addr), (GpuKind::Physical, Some(3), 20));
        let Some(Gpu::Taken(taken)) = event(&on(2)) else { panic!() };
        assert_eq!((taken.kind, taken.device), (GpuKind::PhysicalHost, None));
    }
}
