//! What the loader tells the BPF programs.

/// Set once at load. Offsets come from the running kernel's BTF; 0 means "not known, do without".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelLayout {
    /// `task_struct.thread` + `thread_struct.fsbase`: the user thread pointer
    pub fsbase: u32,
    /// `task_struct.files`
    pub files: u32,
    /// `files_struct.fdt`
    pub fdt: u32,
    /// `fdtable.fd`
    pub fd: u32,
    /// `file.f_inode`
    pub inode: u32,
    /// `inode.i_ino`
    pub ino: u32,
    /// `inode.i_sb`
    pub sb: u32,
    /// `super_block.s_dev`
    pub dev: u32,
}

/// A file as the kernel knows it. `dev` is the kernel's own `s_dev` (major << 20 | minor).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    pub ino: u64,
    pub dev: u32,
    pub _pad: u32,
}

/// Where one library keeps the op annotation of a thread. All zero: no such place.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// Address of the GOT slot that holds the library's TLS module number.
    pub module_slot: u64,
    /// Offset of the annotation in that library's TLS block.
    pub offset: u32,
    /// One of `ANNOTATION_*`.
    pub layout: u32,
}

impl Annotation {
    pub const NONE: Self = Self { module_slot: 0, offset: 0, layout: 0 };
}

/// One traced process (key: tgid). Absent means "not ours": every program leaves at once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Up to TensorFlow 2.18 two libraries define the annotation and the dynamic linker lets all code use one of them;
    /// which one is not known before it has bound them. The other stays empty.
    pub annotations: [Annotation; 2],
    /// Bits, see `PROCESS_*`.
    pub flags: u32,
    /// Which of `UNWIND_RANGES` are the places of its code; 0: none are known.
    pub ranges: u32,
}

impl Process {
    pub const NONE: Self = Self { annotations: [Annotation::NONE; 2], flags: 0, ranges: 0 };
}

/// Elements of the map `EPOCH`: what a program remembers of a process holds while neither changes. The loader's begins
/// with 1.
pub const EPOCH_BY_KERNEL: u32 = 0;
pub const EPOCH_BY_LOADER: u32 = 1;
/// A bit of the loader's: nobody sees libraries go, so places in them must be found anew each time.
pub const PLACES_MAY_MOVE: u64 = 1 << 63;

/// Hold (stop) this process when it maps code of a file not yet judged, until the loader has judged it.
pub const PROCESS_HOLD: u32 = 1;
/// Only rare events of this process are wanted: probes on what happens all the time leave at once. They are in a file
/// for the sake of another process that maps it.
pub const PROCESS_RARE: u32 = 2;

/// How stacks are taken.
pub const STACKS_OFF: u32 = 0;
/// By the files' unwind tables.
pub const STACKS_DWARF: u32 = 1;
/// By frame pointers alone.
pub const STACKS_FP: u32 = 2;
/// As [`STACKS_DWARF`], and the memory of each new stack is sent as well, to be walked by another unwinder.
pub const STACKS_COPY: u32 = 3;

/// TensorFlow up to 2.18: `{ char* op; i64 step; char* region; i32 dtype; … }`
pub const ANNOTATION_CSTR: u32 = 1;
/// TensorFlow 2.21: `{ string_view op (length, pointer); i64 step; string_view region; i32 dtype; … }`
pub const ANNOTATION_VIEW: u32 = 2;

const _: () = assert!(size_of::<KernelLayout>() == 32);
const _: () = assert!(size_of::<FileId>() == 16);
const _: () = assert!(size_of::<Annotation>() == 16);
const _: () = assert!(size_of::<Process>() == 40);

#[cfg(feature = "user")]
mod user {
    // SAFETY: `#[repr(C)]`, integers only, padding explicit; any bit pattern is valid.
    unsafe impl aya::Pod for super::KernelLayout {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::FileId {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::Process {}
}
