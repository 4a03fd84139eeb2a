//! Reads just enough of an ELF file to find symbols in it.
//!
//! TensorFlow's main library is 0.5–1.1 GB with more than half a million functions, so nothing is read whole: the
//! program headers, the dynamic section and a few hash buckets suffice for most questions.
//!
//! Files are read with `pread`, not mapped. They belong to the traced process, and a file that is cut short while it is
//! mapped kills the reader with SIGBUS; a failed `pread` is an ordinary error. What is read is a few kilobytes, so
//! a mapping would not even be faster.
//!
//! Layouts: System V ABI, chapters 4 and 5 (<https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html>), by way of
//! `object`'s definitions. Every number that comes from the file is checked before use.

mod frames;
mod functions;
mod nameless;
mod section;
mod symbols;
mod tls;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use object::LittleEndian as LE;
use object::elf::{self, Dyn64, FileHeader64, NoteHeader64, ProgramHeader64, SectionHeader64};
use object::pod::{Pod, from_bytes, slice_from_all_bytes};

use crate::catalogue::{self, LANDMARKS};

pub use frames::Frames;
pub use functions::Functions;
pub use nameless::nameless;
pub use symbols::{Hit, Symbol, Table};
pub use tls::{ModuleSlot, TlsVariable};

pub type Result<T> = std::result::Result<T, ElfError>;

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("cannot open: {0}")]
    Open(#[source] std::io::Error),
    #[error("not a regular file")]
    NotAFile,
    #[error("cannot read: {0}")]
    Read(#[source] std::io::Error),
    #[error("not an ELF file")]
    NotElf,
    #[error("made for another machine ({0})")]
    Foreign(&'static str),
    #[error("damaged ELF file: {0}")]
    Damaged(&'static str),
}

/// No table of a sane library is larger (libtensorflow_cc's largest is its 175 MB string table).
const MAX_TABLE: u64 = 1 << 30;
/// Program headers and dynamic entries of a sane library: some tens.
const MAX_ENTRIES: usize = 4096;

/// A `PT_LOAD` or `PT_TLS` segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    vaddr: u64,
    offset: u64,
    file_size: u64,
    memory_size: u64,
    executable: bool,
}

/// A byte range of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Range {
    offset: u64,
    size: u64,
}

/// The dynamic section's entries that matter here. Addresses are as in the file, not relocated.
#[derive(Clone, Copy, Debug, Default)]
struct Dynamic {
    symtab: Option<u64>,
    strtab: Option<u64>,
    strtab_size: u64,
    gnu_hash: Option<u64>,
    sysv_hash: Option<u64>,
    rela: Option<u64>,
    rela_size: u64,
    plt_rela: Option<u64>,
    plt_rela_size: u64,
    /// Tables of symbol versions: only their places matter here, as bounds of other tables.
    versions: [Option<u64>; 3],
    soname: Option<u64>,
    pie: bool,
}

/// An opened x86-64 ELF file.
#[derive(Debug)]
pub struct Elf {
    file: File,
    len: u64,
    kind: elf::FileType,
    loads: Vec<Segment>,
    notes: Vec<Range>,
    has_tls: bool,
    has_interpreter: bool,
    dynamic: Option<Dynamic>,
    sections: Option<Range>,
}

impl Elf {
    pub fn open(path: &Path) -> Result<Self> {
        // O_NONBLOCK: a path in another process's root may be a FIFO put there to make us wait for ever.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(ElfError::Open)?;
        Self::from_file(file)
    }

    pub fn from_file(file: File) -> Result<Self> {
        let meta = file.metadata().map_err(ElfError::Read)?;
        if !meta.is_file() {
            return Err(ElfError::NotAFile);
        }
        let mut this = Self {
            file,
            len: meta.len(),
            kind: elf::ET_NONE,
            loads: Vec::new(),
            notes: Vec::new(),
            has_tls: false,
            has_interpreter: false,
            dynamic: None,
            sections: None,
        };
        this.read_headers()?;
        Ok(this)
    }

    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A program, not a library: nothing interposes its symbols, and a static one has no dynamic symbols at all.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        self.kind == elf::ET_EXEC || self.has_interpreter || self.dynamic.is_some_and(|d| d.pie)
    }

    /// Bytes from the load base to the end of the last segment.
    #[must_use]
    pub fn image_size(&self) -> u64 {
        self.loads.iter().map(|s| s.vaddr.saturating_add(s.memory_size)).max().unwrap_or(0)
    }

    fn read_headers(&mut self) -> Result<()> {
        let mut ident = [0_u8; 64];
        if self.len < 64 {
            return Err(ElfError::NotElf);
        }
        self.read_into(0, &mut ident)?;
        let header: &FileHeader64<LE> = pod(&ident)?;
        let ident = &header.e_ident;
        if ident.magic != elf::ELFMAG {
            return Err(ElfError::NotElf);
        }
        if ident.class != elf::ELFCLASS64 {
            return Err(ElfError::Foreign("32 bit"));
        }
        if ident.data != elf::ELFDATA2LSB {
            return Err(ElfError::Foreign("big-endian"));
        }
        if header.e_machine.get(LE) != elf::EM_X86_64 {
            return Err(ElfError::Foreign("not x86-64"));
        }
        self.kind = header.e_type.get(LE);
        if self.kind != elf::ET_DYN && self.kind != elf::ET_EXEC {
            return Err(ElfError::Damaged("neither a program nor a library"));
        }

        let section_count = u64::from(header.e_shnum.get(LE));
        let section_offset = header.e_shoff.get(LE);
        if section_offset != 0 && usize::from(header.e_shentsize.get(LE)) == size_of::<SectionHeader64<LE>>() {
            self.sections = self.range(section_offset, section_count * size_of::<SectionHeader64<LE>>() as u64).ok();
        }

        if usize::from(header.e_phentsize.get(LE)) != size_of::<ProgramHeader64<LE>>() {
            return Err(ElfError::Damaged("program headers of another size"));
        }
        let count = usize::from(header.e_phnum.get(LE));
        if count == 0 || count > MAX_ENTRIES {
            return Err(ElfError::Damaged("no program headers, or absurdly many"));
        }
        let bytes = self.bytes(header.e_phoff.get(LE), (count * size_of::<ProgramHeader64<LE>>()) as u64)?;
        let mut dynamic = None;
        for segment in pods::<ProgramHeader64<LE>>(&bytes)? {
            let (offset, size) = (segment.p_offset.get(LE), segment.p_filesz.get(LE));
            match segment.p_type.get(LE) {
                elf::PT_LOAD => self.loads.push(Segment {
                    vaddr: segment.p_vaddr.get(LE),
                    offset,
                    file_size: size,
                    memory_size: segment.p_memsz.get(LE),
                    executable: segment.p_flags.get(LE).contains(elf::PF_X),
                }),
                elf::PT_DYNAMIC => dynamic = Some((offset, size)),
                elf::PT_NOTE => self.notes.extend(self.range(offset, size)),
                elf::PT_TLS => self.has_tls = true,
                elf::PT_INTERP => self.has_interpreter = true,
                _ => {}
            }
        }
        if let Some((offset, size)) = dynamic {
            self.dynamic = Some(self.read_dynamic(offset, size)?);
        }
        Ok(())
    }

    fn read_dynamic(&self, offset: u64, size: u64) -> Result<Dynamic> {
        let entry = size_of::<Dyn64<LE>>() as u64;
        let bytes = self.bytes(offset, (size / entry).min(MAX_ENTRIES as u64) * entry)?;
        let mut found = Dynamic::default();
        for item in pods::<Dyn64<LE>>(&bytes)? {
            let value = item.d_val.get(LE);
            match item.d_tag.get(LE) {
                elf::DT_NULL => break,
                elf::DT_SYMTAB => found.symtab = Some(value),
                elf::DT_STRTAB => found.strtab = Some(value),
                elf::DT_STRSZ => found.strtab_size = value,
                elf::DT_GNU_HASH => found.gnu_hash = Some(value),
                elf::DT_HASH => found.sysv_hash = Some(value),
                elf::DT_RELA => found.rela = Some(value),
                elf::DT_RELASZ => found.rela_size = value,
                elf::DT_JMPREL => found.plt_rela = Some(value),
                elf::DT_PLTRELSZ => found.plt_rela_size = value,
                elf::DT_VERSYM => found.versions[0] = Some(value),
                elf::DT_VERNEED => found.versions[1] = Some(value),
                elf::DT_VERDEF => found.versions[2] = Some(value),
                elf::DT_SONAME => found.soname = Some(value),
                elf::DT_FLAGS_1 => found.pie = value & elf::DF_1_PIE.0 != 0,
                _ => {}
            }
        }
        Ok(found)
    }

    /// The name that the library gives itself, as far as it is a sensible one.
    #[must_use]
    pub fn soname(&self) -> Option<String> {
        let dynamic = self.dynamic?;
        let name = self.at(dynamic.strtab?.checked_add(dynamic.soname?)?, 256).ok()?;
        let end = name.iter().position(|&byte| byte == 0)?;
        String::from_utf8(name.get(..end)?.to_vec()).ok()
    }

    /// The GNU build id, as lower-case hex.
    #[must_use]
    pub fn build_id(&self) -> Option<String> {
        self.notes.iter().find_map(|&note| self.build_id_in(note))
    }

    fn build_id_in(&self, note: Range) -> Option<String> {
        // The build id is a note of a few bytes; annobin's notes may be megabytes and come in segments of their own.
        let bytes = self.bytes(note.offset, note.size.min(64 << 10)).ok()?;
        let mut rest = bytes.as_slice();
        loop {
            let (header, tail) = from_bytes::<NoteHeader64<LE>>(rest).ok()?;
            let name_size = header.n_namesz.get(LE) as usize;
            let desc_size = header.n_descsz.get(LE) as usize;
            let name = tail.get(..name_size)?;
            let tail = tail.get(name_size.checked_next_multiple_of(4)?..)?;
            let desc = tail.get(..desc_size)?;
            if header.n_type.get(LE) == elf::NT_GNU_BUILD_ID && name == b"GNU\0" {
                // A real one has 8 to 32 bytes; it becomes part of a file name.
                let fits = (4..=64).contains(&desc.len());
                return fits.then(|| desc.iter().map(|b| format!("{b:02x}")).collect());
            }
            rest = tail.get(desc_size.checked_next_multiple_of(4)?..)?;
        }
    }

    /// What tells this library from others: its build id, or, where it has none (TensorFlow's wheel 2.21.0), a digest of
    /// its size and of its headers. Neither is a proof.
    #[must_use]
    pub fn identity(&self) -> Option<String> {
        if let Some(id) = self.build_id() {
            return Some(format!("b{id}"));
        }
        // The headers at the start, and the section headers at the end, which say how large each part is.
        let head = self.bytes(0, self.len.min(4096)).ok()?;
        let tail = self.bytes(self.len.saturating_sub(4096), self.len.min(4096)).ok()?;
        let digest = catalogue::digest(self.len.to_le_bytes().into_iter().chain(head).chain(tail));
        Some(format!("d{digest:016x}"))
    }

    /// Where in the file the byte is that the loader puts at `vaddr`. By program headers: the loader knows no sections.
    #[must_use]
    pub fn file_offset(&self, vaddr: u64) -> Option<u64> {
        self.locate(vaddr).map(|(offset, _)| offset)
    }

    /// The same for code: `None` when the address is in no executable segment.
    #[must_use]
    pub fn code_offset(&self, vaddr: u64) -> Option<u64> {
        let executable = |s: &&Segment| s.executable && vaddr.wrapping_sub(s.vaddr) < s.file_size;
        let segment = self.loads.iter().find(executable)?;
        segment.offset.checked_add(vaddr - segment.vaddr).filter(|&offset| offset < self.len)
    }

    /// The executable segments: place in the file, address.
    #[must_use]
    pub fn code_segments(&self) -> Vec<(u64, u64)> {
        self.loads.iter().filter(|s| s.executable).map(|s| (s.offset, s.vaddr)).collect()
    }

    /// File offset of `vaddr`, and how many bytes follow in the same segment.
    fn locate(&self, vaddr: u64) -> Option<(u64, u64)> {
        let segment = self.loads.iter().find(|s| vaddr.wrapping_sub(s.vaddr) < s.file_size)?;
        let inside = vaddr - segment.vaddr;
        let offset = segment.offset.checked_add(inside)?;
        let left = (segment.file_size - inside).min(self.len.checked_sub(offset)?);
        (left > 0).then_some((offset, left))
    }

    /// Up to `size` bytes of the loaded image at `vaddr`.
    pub fn at(&self, vaddr: u64, size: u64) -> Result<Vec<u8>> {
        let (offset, left) = self.locate(vaddr).ok_or(ElfError::Damaged("an address outside the file"))?;
        self.bytes(offset, size.min(left))
    }

    /// The range of a table of `size` bytes that starts at `vaddr`.
    fn table_at(&self, vaddr: u64, size: u64) -> Result<Range> {
        let (offset, left) = self.locate(vaddr).ok_or(ElfError::Damaged("a table outside the file"))?;
        if size > left {
            return Err(ElfError::Damaged("a table longer than its segment"));
        }
        self.range(offset, size)
    }

    fn range(&self, offset: u64, size: u64) -> Result<Range> {
        match offset.checked_add(size) {
            Some(end) if end <= self.len && size <= MAX_TABLE => Ok(Range { offset, size }),
            _ => Err(ElfError::Damaged("a table outside the file")),
        }
    }

    fn bytes(&self, offset: u64, size: u64) -> Result<Vec<u8>> {
        self.range(offset, size)?;
        let mut buffer = vec![0; usize::try_from(size).map_err(|_| ElfError::Damaged("a table too large"))?];
        self.read_into(offset, &mut buffer)?;
        Ok(buffer)
    }

    fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(ElfError::Read)
    }

    fn value<T: Pod + Copy>(&self, range: Range, index: u64) -> Result<T> {
        let size = size_of::<T>() as u64;
        let start = index.checked_mul(size).ok_or(ElfError::Damaged("an index too large"))?;
        if start.checked_add(size).is_none_or(|end| end > range.size) {
            return Err(ElfError::Damaged("an index beyond its table"));
        }
        // Large enough for each of the records read one by one (the largest is a section header).
        let mut buffer = [0_u8; 64];
        let part = buffer.get_mut(..size_of::<T>()).ok_or(ElfError::Damaged("a record too large"))?;
        self.read_into(range.offset + start, part)?;
        pod::<T>(part).copied()
    }
}

/// No program with TensorFlow inside is smaller.
const STATIC_TENSORFLOW: u64 = 50 << 20;

/// May a mapped file hold symbols of the catalogue? Decided from a few hash buckets, without reading tables.
///
/// Only a static executable has to be looked at more closely: it has no hash table. Those with TensorFlow inside are
/// large, so small ones are left alone.
pub fn interesting(path: &Path) -> Result<bool> {
    let elf = Elf::open(path)?;
    let landmark = |name: &[u8]| LANDMARKS.iter().any(|l| l.as_bytes() == name);
    if elf.has_hash() {
        for name in LANDMARKS {
            if elf.lookup(name)?.is_some() {
                return Ok(true);
            }
        }
    } else if !elf.scan(Table::Dynamic, &landmark)?.is_empty() {
        return Ok(true);
    }
    if elf.is_executable() && elf.len() >= STATIC_TENSORFLOW {
        return Ok(!elf.scan(Table::Full, &landmark)?.is_empty());
    }
    Ok(false)
}

fn pod<T: Pod>(bytes: &[u8]) -> Result<&T> {
    from_bytes(bytes).map(|(value, _)| value).map_err(|()| ElfError::Damaged("a record cut short"))
}

fn pods<T: Pod>(bytes: &[u8]) -> Result<&[T]> {
    slice_from_all_bytes(bytes).map_err(|()| ElfError::Damaged("a table cut short"))
}
