//! Where a file keeps its unwind information, and its code by address.

use object::LittleEndian as LE;
use object::elf::{self, SectionHeader64};

use super::{Elf, ElfError, Range, Result};

/// No sane library has more (libtensorflow_cc has 31 to 80 MB).
const LARGEST_FRAMES: u64 = 512 << 20;
/// Section names are short.
const LONGEST_NAME: u64 = 16;

/// The section `.eh_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    pub address: u64,
    offset: u64,
    pub size: u64,
}

impl Elf {
    /// The file's call frame information, by its section's name. `None`: it has none.
    ///
    /// # Errors
    /// When the section headers cannot be read or make no sense.
    pub fn frames(&self) -> Result<Option<Frames>> {
        let Some(sections) = self.sections else { return Ok(None) };
        let size = size_of::<SectionHeader64<LE>>() as u64;
        let mut header = [0_u8; 64];
        self.read_into(0, &mut header)?;
        let header: &elf::FileHeader64<LE> = super::pod(&header)?;
        let names: SectionHeader64<LE> = self.value(sections, u64::from(header.e_shstrndx.get(LE).0))?;
        let names = self.range(names.sh_offset.get(LE), names.sh_size.get(LE))?;
        for index in 0..sections.size / size {
            let section: SectionHeader64<LE> = self.value(sections, index)?;
            if !self.is_named(names, u64::from(section.sh_name.get(LE)), b".eh_frame\0")? {
                continue;
            }
            let (offset, size) = (section.sh_offset.get(LE), section.sh_size.get(LE));
            let Range { offset, size } = self.range(offset, size)?;
            if size > LARGEST_FRAMES {
                return Err(ElfError::Damaged("too much unwind information"));
            }
            return Ok((size > 0).then_some(Frames { address: section.sh_addr.get(LE), offset, size }));
        }
        Ok(None)
    }

    fn is_named(&self, names: Range, at: u64, wanted: &[u8]) -> Result<bool> {
        let len = wanted.len() as u64;
        if len > LONGEST_NAME || at.checked_add(len).is_none_or(|end| end > names.size) {
            return Ok(false);
        }
        Ok(self.bytes(names.offset + at, len)? == wanted)
    }

    /// Up to `size` bytes of the call frame information from `at`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn frames_at(&self, frames: Frames, at: u64, size: u64) -> Result<Vec<u8>> {
        let left = frames.size.checked_sub(at).ok_or(ElfError::Damaged("unwind information beyond its end"))?;
        self.bytes(frames.offset + at, size.min(left))
    }

    /// The addresses of executable code, from the first to behind the last; only what the file holds counts.
    #[must_use]
    pub fn code_extent(&self) -> Option<(u64, u64)> {
        let code = || self.loads.iter().filter(|segment| segment.executable);
        let end = |segment: &super::Segment| segment.vaddr.saturating_add(segment.file_size);
        Some((code().map(|segment| segment.vaddr).min()?, code().map(end).max()?))
    }

    /// The executable segments: place in the file, address, size.
    #[must_use]
    pub fn code_ranges(&self) -> Vec<(u64, u64, u64)> {
        let code = self.loads.iter().filter(|segment| segment.executable);
        code.map(|segment| (segment.offset, segment.vaddr, segment.file_size)).collect()
    }
}
