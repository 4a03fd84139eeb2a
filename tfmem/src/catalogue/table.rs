//! The table itself.
//!
//! Names were read from the dynamic symbol tables of the wheels 2.12.0, 2.15.1, 2.18.1 and 2.21.0 (x86-64, Linux).
//! Spellings of earlier versions follow from the sources: up to 2.10 the allocator's namespace is `tensorflow`.

use tfmem_common::cookie::Text;

use super::pools::{BEFORE, TSL};
use super::{AnnotationSymbols, Entry, Family, Pattern, Program, Several, Spelling, Unserved, distributed};
use crate::event::Call;

pub(super) const ALL_READ: &str = "2.12.0, 2.15.1, 2.18.1, 2.21.0";
const BEFORE_TSL: &str = "up to 2.10 (from the sources)";

pub(super) const fn exact(name: &'static str, text: Text, known_in: &'static str) -> Spelling {
    Spelling { pattern: Pattern::Exact(name), text, known_in }
}

pub(super) const fn prefix(name: &'static str, text: Text, known_in: &'static str) -> Spelling {
    Spelling { pattern: Pattern::Prefix(name), text, known_in }
}

/// What most entries have in common: a function of the C API, seen at entry.
pub(super) const C_API: Entry = Entry {
    name: "",
    meaning: "",
    family: Family::Cc,
    program: Program::Call,
    call: None,
    registers: 1,
    several: Several::Each,
    landmark: true,
    spellings: &[],
    wrapper_of: &[],
    unserved: &[],
};

const POOL: Entry = Entry { family: Family::Framework, ..C_API };

const LOCAL: &[Entry] = &[
    // --- what moves memory ---
    Entry {
        name: "BFCAllocator::AddTraceMe",
        meaning: "a chunk left a pool or came back to it (pointer and both sizes)",
        program: Program::Chunk,
        registers: 6,
        spellings: &[exact(TSL.long, Text::None, ALL_READ), exact(BEFORE.long, Text::None, BEFORE_TSL)],
        unserved: &[Unserved {
            // absl's own string_view holds the pointer first, libstdc++'s holds the length first.
            pattern: Pattern::Prefix("_ZN10tensorflow12BFCAllocator10AddTraceMeEN4absl"),
            why: "built as C++14: its text argument has another layout",
        }],
        ..POOL
    },
    Entry {
        name: "BFCAllocator::AddTraceMe without sizes",
        meaning: "the same; the sizes are read from the pool",
        program: Program::ChunkShort,
        registers: 4,
        landmark: false,
        spellings: &[exact(TSL.short, Text::None, ALL_READ), exact(BEFORE.short, Text::None, BEFORE_TSL)],
        ..POOL
    },
    Entry {
        name: "BFCAllocator::DeallocateRawInternal",
        meaning: "a chunk comes back to its pool",
        program: Program::ChunkGivenBack,
        registers: 2,
        landmark: false,
        spellings: &[
            exact(TSL.give_back_internal, Text::None, ALL_READ),
            exact(BEFORE.give_back_internal, Text::None, BEFORE_TSL),
        ],
        ..POOL
    },
    Entry {
        name: "port::AlignedMalloc",
        meaning: "a tensor's memory was taken from the C heap (no pool in use)",
        program: Program::AlignedMalloc,
        registers: 2,
        several: Several::First,
        landmark: false,
        spellings: &[
            exact("_ZN3tsl4port13AlignedMallocEmSt11align_val_t", Text::None, "2.21.0"),
            exact("_ZN3tsl4port13AlignedMallocEmi", Text::None, "2.12.0, 2.15.1, 2.18.1; a wrapper in 2.21.0"),
            exact("_ZN10tensorflow4port13AlignedMallocEmi", Text::None, BEFORE_TSL),
        ],
        // 2.21.0's libtensorflow_cc has the wrapper alone and imports the function itself.
        wrapper_of: &["_ZN3tsl4port13AlignedMallocEmSt11align_val_t"],
        ..POOL
    },
    Entry {
        name: "port::AlignedFree",
        meaning: "such memory was given back",
        program: Program::AlignedFree,
        registers: 1,
        landmark: false,
        spellings: &[
            exact("_ZN3tsl4port11AlignedFreeEPv", Text::None, ALL_READ),
            exact("_ZN10tensorflow4port11AlignedFreeEPv", Text::None, BEFORE_TSL),
        ],
        ..POOL
    },
    Entry {
        name: "port::AlignedSizedFree",
        meaning: "such memory was given back, by a caller that knows its size",
        program: Program::AlignedFree,
        registers: 1,
        landmark: false,
        spellings: &[
            exact("_ZN3tsl4port16AlignedSizedFreeEPvmSt11align_val_t", Text::None, "2.21.0"),
            exact("_ZN3tsl4port16AlignedSizedFreeEPvmm", Text::None, "2.18.1"),
        ],
        ..POOL
    },
    // --- pools ---
    Entry {
        name: "BFCAllocator::BFCAllocator",
        meaning: "a pool was made",
        call: Some(Call::PoolNew),
        registers: 5,
        several: Several::Variants,
        spellings: &[
            exact(
                "_ZN3tsl12BFCAllocatorC1ESt10unique_ptrINS_12SubAllocatorESt14default_deleteIS2_EEmRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS0_7OptionsE",
                Text::StdString(3),
                ALL_READ,
            ),
            exact(
                "_ZN3tsl12BFCAllocatorC2ESt10unique_ptrINS_12SubAllocatorESt14default_deleteIS2_EEmRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS0_7OptionsE",
                Text::StdString(3),
                ALL_READ,
            ),
            prefix("_ZN10tensorflow12BFCAllocatorC1ESt10unique_ptrI", Text::StdString(3), BEFORE_TSL),
            prefix("_ZN10tensorflow12BFCAllocatorC2ESt10unique_ptrI", Text::StdString(3), BEFORE_TSL),
            prefix("_ZN10tensorflow12BFCAllocatorC1EPNS_12SubAllocatorEmRKNSt", Text::StdString(3), BEFORE_TSL),
            prefix("_ZN10tensorflow12BFCAllocatorC2EPNS_12SubAllocatorEmRKNSt", Text::StdString(3), BEFORE_TSL),
            prefix("_ZN10tensorflow12BFCAllocatorC1EPNS_12SubAllocatorEmbRKNSt", Text::StdString(4), BEFORE_TSL),
            prefix("_ZN10tensorflow12BFCAllocatorC2EPNS_12SubAllocatorEmbRKNSt", Text::StdString(4), BEFORE_TSL),
        ],
        ..POOL
    },
    Entry {
        name: "BFCAllocator::~BFCAllocator",
        meaning: "a pool was destroyed, with all its regions",
        call: Some(Call::PoolDestroy),
        several: Several::Variants,
        spellings: &[
            exact("_ZN3tsl12BFCAllocatorD2Ev", Text::None, ALL_READ),
            exact("_ZN3tsl12BFCAllocatorD1Ev", Text::None, ALL_READ),
            exact("_ZN3tsl12BFCAllocatorD0Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow12BFCAllocatorD2Ev", Text::None, BEFORE_TSL),
            exact("_ZN10tensorflow12BFCAllocatorD1Ev", Text::None, BEFORE_TSL),
            exact("_ZN10tensorflow12BFCAllocatorD0Ev", Text::None, BEFORE_TSL),
        ],
        ..POOL
    },
    Entry {
        name: "BFCAllocator::Extend",
        meaning: "a pool takes a region from the layer below",
        program: Program::CallAndReturn,
        call: Some(Call::PoolExtend),
        registers: 3,
        spellings: &[
            exact("_ZN3tsl12BFCAllocator6ExtendEmm", Text::None, ALL_READ),
            exact("_ZN10tensorflow12BFCAllocator6ExtendEmm", Text::None, BEFORE_TSL),
        ],
        ..POOL
    },
    Entry {
        name: "BFCAllocator::DeallocateRegions",
        meaning: "a pool gives free regions back to the layer below",
        call: Some(Call::PoolDeallocateRegions),
        registers: 2,
        spellings: &[
            // The rest of the name holds absl's inline namespace (`lts_20250814`), new with each release.
            prefix("_ZN3tsl12BFCAllocator17DeallocateRegionsERKN4absl", Text::None, ALL_READ),
            prefix("_ZN10tensorflow12BFCAllocator17DeallocateRegionsERK", Text::None, BEFORE_TSL),
        ],
        ..POOL
    },
    // --- sessions ---
    Entry {
        name: "TF_NewSession",
        meaning: "a session was opened",
        program: Program::CallAndReturn,
        call: Some(Call::NewSession),
        registers: 3,
        spellings: &[exact("TF_NewSession", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TF_LoadSessionFromSavedModel",
        meaning: "a saved model was loaded into a new session",
        program: Program::CallAndReturn,
        call: Some(Call::LoadSavedModel),
        registers: 3,
        // (session_options, run_options, export_dir, …): tensorflow/c/c_api.h
        spellings: &[exact("TF_LoadSessionFromSavedModel", Text::CStr(2), ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TF_CloseSession",
        meaning: "a session was closed",
        program: Program::CallAndReturn,
        call: Some(Call::CloseSession),
        spellings: &[exact("TF_CloseSession", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TF_DeleteSession",
        meaning: "a session's handle was deleted",
        program: Program::CallAndReturn,
        call: Some(Call::DeleteSession),
        spellings: &[exact("TF_DeleteSession", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TF_SessionRun",
        meaning: "a session runs a step",
        program: Program::CallAndReturn,
        call: Some(Call::SessionRun),
        spellings: &[exact("TF_SessionRun", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "DirectSession::DirectSession",
        meaning: "the local session behind a handle was made",
        call: Some(Call::DirectSessionNew),
        registers: 3,
        several: Several::Variants,
        spellings: &[
            exact(
                "_ZN10tensorflow13DirectSessionC2ERKNS_14SessionOptionsEPKNS_9DeviceMgrEPNS_20DirectSessionFactoryE",
                Text::None,
                ALL_READ,
            ),
            exact(
                "_ZN10tensorflow13DirectSessionC1ERKNS_14SessionOptionsEPKNS_9DeviceMgrEPNS_20DirectSessionFactoryE",
                Text::None,
                ALL_READ,
            ),
        ],
        ..C_API
    },
    Entry {
        name: "DirectSession::Close",
        meaning: "the local session was closed",
        program: Program::CallAndReturn,
        call: Some(Call::DirectSessionClose),
        registers: 2,
        spellings: &[exact("_ZN10tensorflow13DirectSession5CloseEv", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "DirectSession::~DirectSession",
        meaning: "the local session was destroyed",
        call: Some(Call::DirectSessionDestroy),
        several: Several::Variants,
        spellings: &[
            exact("_ZN10tensorflow13DirectSessionD2Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow13DirectSessionD1Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow13DirectSessionD0Ev", Text::None, ALL_READ),
        ],
        ..C_API
    },
    Entry {
        name: "DirectSession::RunInternal",
        meaning: "a step begins: ties the step's number to its session",
        call: Some(Call::DirectSessionStep),
        registers: 3,
        spellings: &[
            exact(
                "_ZN10tensorflow13DirectSession11RunInternalElRKNS_10RunOptionsEPNS_18CallFrameInterfaceEPNS0_16ExecutorsAndKeysEPNS_11RunMetadataERKN3tsl6thread17ThreadPoolOptionsE",
                Text::None,
                ALL_READ,
            ),
            // `l` or `x`: the step's number is `long` or, in older versions, `long long`.
            prefix("_ZN10tensorflow13DirectSession11RunInternalElRKNS_10RunOptionsEPNS_1", Text::None, "others"),
            prefix("_ZN10tensorflow13DirectSession11RunInternalExRKNS_10RunOptionsEPNS_1", Text::None, "others"),
        ],
        ..C_API
    },
    // --- graphs and the eager context ---
    Entry {
        name: "TF_NewGraph",
        meaning: "a graph was made",
        program: Program::CallAndReturn,
        call: Some(Call::NewGraph),
        registers: 0,
        spellings: &[exact("TF_NewGraph", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TF_DeleteGraph",
        meaning: "a graph was deleted",
        call: Some(Call::DeleteGraph),
        spellings: &[exact("TF_DeleteGraph", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TFE_NewContext",
        meaning: "the eager context was made",
        program: Program::CallAndReturn,
        call: Some(Call::NewContext),
        spellings: &[exact("TFE_NewContext", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TFE_DeleteContext",
        meaning: "the eager context was deleted",
        program: Program::CallAndReturn,
        call: Some(Call::DeleteContext),
        spellings: &[exact("TFE_DeleteContext", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TFE_ContextClearCaches",
        meaning: "the eager context dropped its caches",
        program: Program::CallAndReturn,
        call: Some(Call::ClearCaches),
        spellings: &[exact("TFE_ContextClearCaches", Text::None, ALL_READ)],
        ..C_API
    },
    Entry {
        name: "TFE_ContextAddFunction",
        meaning: "a traced function was added to the eager context",
        call: Some(Call::AddFunction),
        registers: 2,
        spellings: &[
            exact("TFE_ContextAddFunction", Text::None, ALL_READ),
            exact("TFE_ContextAddFunctionDef", Text::None, ALL_READ),
        ],
        ..C_API
    },
    Entry {
        name: "TFE_ContextRemoveFunction",
        meaning: "a traced function was removed from the eager context",
        call: Some(Call::RemoveFunction),
        registers: 2,
        spellings: &[exact("TFE_ContextRemoveFunction", Text::CStr(1), ALL_READ)],
        ..C_API
    },
];

/// All entries. A static, so that a spelling has one address.
pub static ENTRIES: &[Entry] = &ALL;

static ALL: [Entry; LOCAL.len() + distributed::ENTRIES.len()] = {
    let mut all = [C_API; LOCAL.len() + distributed::ENTRIES.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < LOCAL.len() { LOCAL[i] } else { distributed::ENTRIES[i - LOCAL.len()] };
        i += 1;
    }
    all
};

/// `ScopedMemoryDebugAnnotation::ThreadMemoryDebugAnnotation()::annotation` (tsl/profiler/lib/scoped_memory_debug_annotation.h).
pub const ANNOTATION: AnnotationSymbols = AnnotationSymbols {
    variable_prefix: "_ZZN",
    variable_suffix: "8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEvE10annotation",
    getters: &[
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv",
        "_ZN10tensorflow8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv",
    ],
    cstr_constructors: &[
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2EPKc",
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2EPKcl",
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2EPKclS3_iOSt8functionIFNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEvEE",
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2EPKcS3_iOSt8functionIFNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEvEE",
    ],
    view_constructors: &[
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEE",
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEEl",
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEElS5_iOSt8functionIFNSt7__cxx1112basic_stringIcS4_SaIcEEEvEE",
        "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEES5_iOSt8functionIFNSt7__cxx1112basic_stringIcS4_SaIcEEEvEE",
    ],
    // Distance from the variable to its guard byte, the same in 2.12.0, 2.15.1, 2.18.1 and in 2.21.0.
    cstr_size: 64,
    view_size: 80,
};
