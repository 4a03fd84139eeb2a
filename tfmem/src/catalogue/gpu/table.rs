//! The table itself. Numbers on the wire are places in it, and no recording holds them.

use tfmem_common::gpu::{Effect, Structure};

use super::{Entry, Meaning, Place, Size};
use crate::event::{GpuKind, GpuSpace};

const NOTHING: Entry = Entry {
    names: &[],
    meaning: Meaning::Current,
    results: [None; 2],
    structure: None,
    effect: Effect::None,
    registers: 1,
    frequent: false,
};

const fn words(argument: u8, words: u8) -> Option<Structure> {
    Some(Structure { argument, from: 0, words })
}

/// The first argument points to where the new address goes.
const fn takes(names: &'static [&'static str], kind: GpuKind, size: Size) -> Entry {
    let meaning = Meaning::Taken(kind, Place::Result, size);
    Entry { names, meaning, results: [Some(0), None], registers: 4, ..NOTHING }
}

const fn gives_back(names: &'static [&'static str], space: GpuSpace) -> Entry {
    Entry { names, meaning: Meaning::GivenBack(space, 0), ..NOTHING }
}

const fn current(names: &'static [&'static str], effect: Effect) -> Entry {
    Entry { names, effect, ..NOTHING }
}

/// `device`: the argument that holds it
const fn makes_context(names: &'static [&'static str], device: u8) -> Entry {
    let meaning = Meaning::Context(device, false);
    Entry { names, meaning, results: [Some(0), None], effect: Effect::PushNew, registers: 5, ..NOTHING }
}

const fn tells(names: &'static [&'static str], meaning: Meaning, structure: Option<Structure>) -> Entry {
    Entry { names, meaning, structure, registers: 3, ..NOTHING }
}

const fn result_tells(names: &'static [&'static str], meaning: Meaning, structure: Option<Structure>) -> Entry {
    Entry { results: [Some(0), None], ..tells(names, meaning, structure) }
}

pub const ENTRIES: &[Entry] = &[
    // --- plain ---
    takes(&["cuMemAlloc_v2"], GpuKind::Linear, Size::Argument(1)),
    Entry { results: [Some(0), Some(1)], ..takes(&["cuMemAllocPitch_v2"], GpuKind::Linear, Size::Pitch(3)) },
    takes(&["cuMemAllocManaged"], GpuKind::Managed, Size::Argument(1)),
    gives_back(&["cuMemFree_v2"], GpuSpace::Memory),
    // --- arrays ---
    Entry { structure: words(1, 3), ..takes(&["cuArrayCreate_v2"], GpuKind::Array, Size::Array) },
    Entry { structure: words(1, 5), ..takes(&["cuArray3DCreate_v2"], GpuKind::Array, Size::Array3D) },
    Entry { structure: words(1, 5), ..takes(&["cuMipmappedArrayCreate"], GpuKind::Array, Size::Levels(2)) },
    gives_back(&["cuArrayDestroy", "cuMipmappedArrayDestroy"], GpuSpace::Array),
    // --- host ---
    takes(&["cuMemHostAlloc", "cuMemAllocHost_v2"], GpuKind::Host, Size::Argument(1)),
    gives_back(&["cuMemFreeHost"], GpuSpace::Host),
    Entry {
        names: &["cuMemHostRegister_v2", "cuMemHostRegister"],
        meaning: Meaning::Taken(GpuKind::Registered, Place::Argument(0), Size::Argument(1)),
        registers: 2,
        ..NOTHING
    },
    gives_back(&["cuMemHostUnregister"], GpuSpace::Registered),
    // --- in order of a stream ---
    Entry { frequent: true, ..takes(&["cuMemAllocAsync", "cuMemAllocAsync_ptsz"], GpuKind::Stream, Size::Argument(1)) },
    Entry {
        names: &["cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"],
        meaning: Meaning::TakenFromPool(Place::Result, Size::Argument(1), 2),
        results: [Some(0), None],
        registers: 3,
        frequent: true,
        ..NOTHING
    },
    Entry { frequent: true, ..gives_back(&["cuMemFreeAsync", "cuMemFreeAsync_ptsz"], GpuSpace::Memory) },
    // CUmemPoolProps: type and handle types, location
    result_tells(&["cuMemPoolCreate"], Meaning::PoolMade, words(1, 2)),
    tells(&["cuMemPoolDestroy"], Meaning::PoolGone, None),
    tells(&["cuMemPoolTrimTo"], Meaning::PoolTrimmed, None),
    tells(&["cuMemPoolSetAttribute", "cuMemPoolGetAttribute"], Meaning::PoolAttribute, words(2, 1)),
    result_tells(&["cuDeviceGetDefaultMemPool"], Meaning::PoolOfDevice, None),
    tells(&["cuDeviceSetMemPool"], Meaning::PoolChosen, None),
    // --- virtual memory ---
    takes(&["cuMemAddressReserve"], GpuKind::Addresses, Size::Argument(1)),
    gives_back(&["cuMemAddressFree"], GpuSpace::Addresses),
    // CUmemAllocationProp: type and handle types, location
    result_tells(&["cuMemCreate"], Meaning::Created, words(2, 2)),
    takes(&["cuMemImportFromShareableHandle"], GpuKind::ImportedHandle, Size::Unknown),
    gives_back(&["cuMemRelease"], GpuSpace::Handle),
    Entry { registers: 4, ..tells(&["cuMemMap"], Meaning::Mapped, None) },
    tells(&["cuMemUnmap"], Meaning::Unmapped, None),
    result_tells(&["cuMemRetainAllocationHandle"], Meaning::Retained, None),
    // --- another process' memory ---
    takes(&["cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"], GpuKind::Imported, Size::Unknown),
    gives_back(&["cuIpcCloseMemHandle"], GpuSpace::Memory),
    // --- graphs. CUDA_MEM_ALLOC_NODE_PARAMS: 88 bytes of pool properties, two words, size, address ---
    Entry {
        names: &["cuGraphAddMemAllocNode"],
        meaning: Meaning::Taken(GpuKind::Graph, Place::Word(1), Size::Word(0)),
        structure: Some(Structure { argument: 4, from: 13, words: 2 }),
        registers: 5,
        ..NOTHING
    },
    Entry {
        names: &["cuGraphAddMemFreeNode"],
        meaning: Meaning::GivenBack(GpuSpace::Memory, 4),
        registers: 5,
        ..NOTHING
    },
    // --- contexts ---
    Entry {
        effect: Effect::None,
        meaning: Meaning::Context(1, true),
        ..makes_context(&["cuDevicePrimaryCtxRetain"], 1)
    },
    tells(&["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"], Meaning::PrimaryReleased, None),
    tells(&["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxReset"], Meaning::PrimaryReset, None),
    makes_context(&["cuCtxCreate_v2"], 2),
    makes_context(&["cuCtxCreate_v3"], 4),
    makes_context(&["cuCtxCreate_v4"], 3),
    Entry { effect: Effect::Drop, ..tells(&["cuCtxDestroy_v2", "cuCtxDestroy"], Meaning::ContextGone, None) },
    current(&["cuCtxSetCurrent"], Effect::Set),
    current(&["cuCtxPushCurrent_v2", "cuCtxPushCurrent"], Effect::Push),
    current(&["cuCtxPopCurrent_v2", "cuCtxPopCurrent"], Effect::Pop),
    // --- names ---
    tells(&["cuDeviceGetUuid_v2", "cuDeviceGetUuid"], Meaning::Uuid, words(0, 2)),
    tells(&["cuDeviceGetPCIBusId"], Meaning::Bus, words(0, 2)),
];
