//! The probe catalogue: the only place that knows TensorFlow's symbol names.
//!
//! One [`Entry`] is one thing worth knowing about TensorFlow, with every spelling its symbol had. A library is matched
//! by the symbols it has, never by its file name: a static executable, a renamed wheel or a distribution's own build
//! are all served alike.

mod call;
mod distributed;
pub mod features;
pub mod gpu;
mod pools;
mod table;

use tfmem_common::cookie::{Cookie, Text};

use crate::event::Call;

pub use call::arguments;
pub use pools::{POOLS, PoolSymbols};
pub use table::{ANNOTATION, ENTRIES};

/// Name of the framework in reports.
pub const FRAMEWORK: &str = "tensorflow";

/// Where a symbol lives in a wheel. Only for reading: a static executable holds both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `libtensorflow_framework.so`: allocators, pools
    Framework,
    /// `libtensorflow_cc.so`: the C API, sessions, the eager context
    Cc,
}

/// The BPF programs that serve an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `BFCAllocator::AddTraceMe` with the chunk's sizes, entry
    Chunk,
    /// `BFCAllocator::AddTraceMe` without them, entry; has a cookie of its own
    ChunkShort,
    /// `BFCAllocator::DeallocateRawInternal`, entry
    ChunkGivenBack,
    /// `port::AlignedMalloc`, entry and return
    AlignedMalloc,
    /// `port::AlignedFree` and `port::AlignedSizedFree`, entry
    AlignedFree,
    /// Any rare call, entry; told apart by the attach cookie
    Call,
    /// Any rare call, entry and return
    CallAndReturn,
}

impl Program {
    /// Name of the BPF function for the entry.
    #[must_use]
    pub const fn enter(self) -> &'static str {
        match self {
            Self::Chunk => "chunk",
            Self::ChunkShort => "chunk_short",
            Self::ChunkGivenBack => "chunk_given_back",
            Self::AlignedMalloc => "aligned_malloc",
            Self::AlignedFree => "aligned_free",
            Self::Call | Self::CallAndReturn => "call_enter",
        }
    }

    /// Name of the BPF function for the return.
    #[must_use]
    pub const fn leave(self) -> Option<&'static str> {
        match self {
            Self::AlignedMalloc => Some("aligned_malloc_ret"),
            Self::CallAndReturn => Some("call_leave"),
            Self::Chunk | Self::ChunkShort | Self::ChunkGivenBack | Self::AlignedFree | Self::Call => None,
        }
    }

    /// Reports chunks of pools. Which of these programs a file needs, its code decides (`attach::plan::chunks`).
    #[must_use]
    pub const fn reports_chunks(self) -> bool {
        matches!(self, Self::Chunk | Self::ChunkShort | Self::ChunkGivenBack)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The whole mangled name.
    Exact(&'static str),
    /// Start of the mangled name: the rest names a type in an inline namespace that changes with each release.
    Prefix(&'static str),
}

/// What several matches of one entry mean. Matches at one address are one place in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {
    /// Each match is a function of its own: probe all.
    Each,
    /// Spellings in order of preference, a later one may be a wrapper around an earlier: probe the first one found.
    First,
    /// Variants of one function (constructors `C1`/`C2`, destructors `D0`/`D1`/`D2`): a variant that only calls
    /// another must not be probed as well, or one call counts twice.
    Variants,
}

#[derive(Clone, Copy, Debug)]
pub struct Spelling {
    pub pattern: Pattern,
    /// Which argument is the call's text, and how it is laid out; the argument counts registers, a hidden result
    /// pointer included.
    pub text: Text,
    /// Versions this spelling was seen in, or is expected in from the sources.
    pub known_in: &'static str,
}

/// A symbol that exists in some versions but cannot be served, and why: said instead of a bare "no such symbol".
#[derive(Clone, Copy, Debug)]
pub struct Unserved {
    pub pattern: Pattern,
    pub why: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Short name, used in plans, in `doctor` and in reports of what is missing.
    pub name: &'static str,
    /// What it means, for a person.
    pub meaning: &'static str,
    pub family: Family,
    pub program: Program,
    pub call: Option<Call>,
    /// How many integer argument registers the program needs as they were at entry.
    pub registers: u8,
    pub several: Several,
    /// Only libraries of the family have it: finding it means that the rest of the family is expected too. (Both
    /// libraries carry copies of the aligned allocator up to 2.18, so that one says nothing.)
    pub landmark: bool,
    /// Alternatives.
    pub spellings: &'static [Spelling],
    /// When one of these is defined or imported, the entry's symbol is a wrapper around it and is left alone.
    pub wrapper_of: &'static [&'static str],
    pub unserved: &'static [Unserved],
}

/// What no report can do without, by family: entries of the catalogue and what is not seen without them.
const ESSENTIAL: &[(Family, &str)] = &[
    (Family::Framework, "BFCAllocator::AddTraceMe"),
    (Family::Framework, "port::AlignedMalloc"),
    (Family::Cc, "TF_NewSession"),
];

/// Whether an entry is about what a program does seldom: opening and closing something.
#[must_use]
pub fn is_rare(entry: &str) -> bool {
    let entry = ENTRIES.iter().find(|known| known.name == entry);
    entry.and_then(|entry| entry.call).is_some_and(|call| !call.is_frequent())
}

/// Names of all of them, for a program that holds both families.
pub fn all_essentials() -> impl Iterator<Item = &'static str> {
    ESSENTIAL.iter().map(|(_, name)| *name)
}

/// Names of the entries that a library of this family must have.
pub fn essentials(family: Family) -> impl Iterator<Item = &'static str> {
    ESSENTIAL.iter().filter(move |(of, _)| *of == family).map(|(_, name)| *name)
}

/// The family of a file by its name, as TensorFlow's wheels and packages name their libraries. For a file without the
/// symbols that would tell (a stripped build).
#[must_use]
pub fn family_by_name(path: &str) -> Option<Family> {
    let name = path.strip_suffix(" (deleted)").unwrap_or(path).rsplit('/').next()?;
    let named = |prefix: &str| name.starts_with(prefix);
    if named("libtensorflow_framework.so") {
        Some(Family::Framework)
    } else if named("libtensorflow_cc.so") || named("libtensorflow.so") {
        Some(Family::Cc)
    } else {
        None
    }
}

impl Entry {
    /// The attach cookie for one spelling: 0 for programs that serve one function only, or that get theirs from the
    /// file's code.
    #[must_use]
    pub const fn cookie(&self, spelling: &Spelling) -> u64 {
        match self.call {
            Some(call) => Cookie { call: call.number(), text: spelling.text, wake: call.wakes() }.pack(),
            None => 0,
        }
    }
}

/// TensorFlow's thread-local note of the op that allocates.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationSymbols {
    /// The thread-local variable (local, so only in `.symtab`) ends with this.
    pub variable_suffix: &'static str,
    pub variable_prefix: &'static str,
    /// The function that returns its address. Where several libraries define it, the dynamic linker picks one for all.
    pub getters: &'static [&'static str],
    /// Constructors whose signature says `const char*` fields.
    pub cstr_constructors: &'static [&'static str],
    /// Constructors whose signature says `string_view` fields.
    pub view_constructors: &'static [&'static str],
    /// `sizeof` the variable with `const char*` and with `string_view` fields.
    pub cstr_size: u64,
    pub view_size: u64,
}

/// Symbols one of which every library of interest has: for a quick look at a mapped file.
pub const LANDMARKS: &[&str] = &[
    "TF_NewSession",
    "TFE_NewContext",
    "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
    "_ZN3tsl4port13AlignedMallocEmi",
    "_ZN3tsl4port13AlignedMallocEmSt11align_val_t",
    "_ZN10tensorflow12BFCAllocator11AllocateRawEmm",
    "_ZN10tensorflow4port13AlignedMallocEmi",
    "_ZN10tensorflow13DirectSession5CloseEv",
    "cuMemAllocFromPoolAsync",
    "cuMemAlloc_v2",
];

/// Names of C++ types that a program with TensorFlow linked in has among its data, stripped or not: what
/// `typeid(…).name()` gives for `tsl::BFCAllocator` and `tensorflow::DirectSession` (seen in all wheels read), and the
/// former's name up to 2.10.
pub const TYPE_NAMES: &[&str] =
    &["N3tsl12BFCAllocatorE", "N10tensorflow13DirectSessionE", "N10tensorflow12BFCAllocatorE"];

/// The function whose result is TensorFlow's version as text.
pub const VERSION_FUNCTION: &str = "TF_Version";

/// Wheels' metadata folders beside the package: `tensorflow-2.15.1.dist-info`, `tensorflow_cpu-2.21.0.dist-info`.
pub const DISTRIBUTIONS: &[&str] = &[
    "tensorflow",
    "tensorflow_cpu",
    "tensorflow_gpu",
    "tensorflow_intel",
    "tensorflow_rocm",
    "tensorflow_aarch64",
    "tf_nightly",
    "tf_nightly_cpu",
];

/// A number that changes when the catalogue does: plans made with another catalogue are stale.
#[must_use]
pub fn fingerprint() -> u64 {
    digest(format!("{ENTRIES:?}{POOLS:?}{ANNOTATION:?}{:?}", gpu::ENTRIES).into_bytes())
}

/// FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>): stable between builds, unlike the standard hasher.
#[must_use]
pub fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_entry_has_a_spelling_and_a_meaning() {
        let mut names = HashSet::new();
        for entry in ENTRIES {
            assert!(names.insert(entry.name), "{} twice", entry.name);
            assert!(!entry.spellings.is_empty(), "{} has no spelling", entry.name);
            assert!(!entry.meaning.is_empty() && entry.registers <= 6, "{}", entry.name);
        }
    }

    #[test]
    fn no_symbol_is_claimed_twice() {
        let mut seen = HashSet::new();
        for entry in ENTRIES {
            for spelling in entry.spellings {
                let (Pattern::Exact(name) | Pattern::Prefix(name)) = spelling.pattern;
                assert!(seen.insert(name), "{name} twice");
            }
        }
    }

    #[test]
    fn every_call_has_an_entry_and_a_generic_program() {
        for call in Call::ALL {
            assert!(ENTRIES.iter().any(|e| e.call == Some(call)), "{call:?}");
        }
        for entry in ENTRIES {
            let generic = matches!(entry.program, Program::Call | Program::CallAndReturn);
            assert_eq!(generic, entry.call.is_some(), "{}", entry.name);
        }
    }

    #[test]
    fn cookies_carry_the_call_and_its_text() {
        for entry in ENTRIES {
            for spelling in entry.spellings {
                let cookie = Cookie::unpack(entry.cookie(spelling));
                assert_eq!(cookie.call, entry.call.map_or(0, Call::number), "{}", entry.name);
                assert_eq!(cookie.text, if entry.call.is_some() { spelling.text } else { Text::None });
                if let Text::CStr(n) | Text::StdString(n) | Text::StdStringAt(n, _) = spelling.text {
                    assert!(n < entry.registers, "{}: its text must survive up to the probe", entry.name);
                }
            }
        }
    }
}
