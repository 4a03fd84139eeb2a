//! Sections by name, unpacked.

use std::io::Read as _;

use object::LittleEndian as LE;
use object::elf::{self, CompressionHeader64, FileHeader64, SectionHeader64};

use super::{Elf, ElfError, Range, Result, pod, pods};

/// Section names are short.
const LONGEST_NAME: u64 = 32;

impl Elf {
    /// What a section holds, unpacked where it is compressed. `None`: the file has no such section, or not its bytes.
    ///
    /// # Errors
    /// When it has more than `most` bytes, cannot be read or makes no sense.
    pub fn section(&self, wanted: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let Some(sections) = self.sections else { return Ok(None) };
        let headers = self.bytes(sections.offset, sections.size)?;
        let headers = pods::<SectionHeader64<LE>>(&headers)?;
        let Some(names) = self.section_names(headers)? else { return Ok(None) };
        for header in headers {
            if header.sh_type.get(LE) == elf::SHT_NOBITS || !self.named(names, header.sh_name.get(LE), wanted)? {
                continue;
            }
            let range = self.range(header.sh_offset.get(LE), header.sh_size.get(LE))?;
            if range.size > most {
                return Err(ElfError::Damaged("a section too large"));
            }
            let bytes = self.bytes(range.offset, range.size)?;
            let packed = header.sh_flags.get(LE).contains(elf::SHF_COMPRESSED);
            return if packed { unpacked(&bytes, most).map(Some) } else { Ok(Some(bytes)) };
        }
        Ok(None)
    }

    fn section_names(&self, headers: &[SectionHeader64<LE>]) -> Result<Option<Range>> {
        let mut bytes = [0_u8; 64];
        self.read_into(0, &mut bytes)?;
        let header: &FileHeader64<LE> = pod(&bytes)?;
        let Some(names) = headers.get(usize::from(header.e_shstrndx.get(LE).0)) else { return Ok(None) };
        self.range(names.sh_offset.get(LE), names.sh_size.get(LE)).map(Some)
    }

    fn named(&self, names: Range, at: u32, wanted: &str) -> Result<bool> {
        let (at, len) = (u64::from(at), wanted.len() as u64 + 1);
        if len > LONGEST_NAME || at.checked_add(len).is_none_or(|end| end > names.size) {
            return Ok(false);
        }
        Ok(self.bytes(names.offset + at, len)?.strip_suffix(&[0]) == Some(wanted.as_bytes()))
    }
}

fn unpacked(bytes: &[u8], most: u64) -> Result<Vec<u8>> {
    const DAMAGED: ElfError = ElfError::Damaged("a section that cannot be unpacked");
    let header: &CompressionHeader64<LE> = pod(bytes)?;
    let size = header.ch_size.get(LE);
    if size > most {
        return Err(ElfError::Damaged("a section too large"));
    }
    let packed = bytes.get(size_of::<CompressionHeader64<LE>>()..).ok_or(DAMAGED)?;
    let mut out = Vec::new();
    // One byte more than it says shows that it lies.
    let read = match header.ch_type.get(LE) {
        elf::ELFCOMPRESS_ZLIB => flate2::read::ZlibDecoder::new(packed).take(size + 1).read_to_end(&mut out),
        elf::ELFCOMPRESS_ZSTD => {
            zstd::Decoder::new(packed).and_then(|decoder| decoder.take(size + 1).read_to_end(&mut out))
        }
        _ => return Err(DAMAGED),
    };
    match read {
        Ok(read) if read as u64 == size => Ok(out),
        _ => Err(DAMAGED),
    }
}
