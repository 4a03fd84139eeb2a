//! Tables remembered on disk, so that each file's call frame information is read through once.
//!
//! The name is made of the information itself (its size, address and checksum), not of a build id, which is only a
//! claim: a table is used for no file but one with the same information.

use std::io;
use std::path::{Path, PathBuf};

use zerocopy::IntoBytes as _;

use super::{Found, Table, build};
use crate::attach::{
    cache::Folder,
    elf::{Elf, Frames, Result},
};

const MAGIC: &[u8; 8] = b"tfmunw\x01\0";
/// Bytes of the largest table: 24 million rows, and they are compressed.
const LARGEST: u64 = 256 << 20;
/// More rows than any table has.
const MOST_ROWS: usize = 64 << 20;
const WINDOW: u64 = 1 << 20;
/// Rows take 8 bytes; this level halves the file and costs little.
const LEVEL: i32 = 1;

#[derive(Clone, Debug)]
pub struct Cache {
    folder: Folder,
}

impl Cache {
    /// The place that [`crate::attach::cache::Cache::open`] takes.
    #[must_use]
    pub fn open() -> Self {
        Self { folder: Folder::open("unwind") }
    }

    /// A cache below this directory.
    #[must_use]
    pub fn at(base: &Path) -> Self {
        Self { folder: Folder::at(base, "unwind") }
    }

    /// The table of a file: remembered, else made and remembered. `None`: the file has no call frame information.
    ///
    /// # Errors
    /// When the file cannot be read, or its information is damaged as a whole.
    pub fn table(&self, elf: &Elf) -> Result<Option<Table>> {
        let Some(frames) = elf.frames()? else { return Ok(None) };
        let file = match &self.folder.path {
            Some(folder) => Some(folder.join(name(elf, frames)?)),
            None => None,
        };
        if let Some(table) = file.as_deref().and_then(|file| load(&self.folder, file)) {
            return Ok(Some(table));
        }
        let table = build(elf)?;
        if let Some((table, file)) = table.as_ref().zip(file)
            && let Err(error) = store(&self.folder, &file, table)
        {
            log::debug!("cannot remember the table in {}: {error}", file.display());
        }
        Ok(table)
    }
}

fn name(elf: &Elf, frames: Frames) -> Result<PathBuf> {
    let mut sum = crc32fast::Hasher::new();
    let mut at = 0;
    while at < frames.size {
        sum.update(&elf.frames_at(frames, at, WINDOW)?);
        at += WINDOW;
    }
    // The code is looked at too when a table is made: its length tells it from that of another build.
    let (start, end) = elf.code_extent().unwrap_or_default();
    Ok(format!("{:08x}-{:x}-{:x}-{start:x}-{end:x}.rows", sum.finalize(), frames.size, frames.address).into())
}

fn load(folder: &Folder, file: &Path) -> Option<Table> {
    let bytes = folder.load(file, LARGEST)?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (count, rest) = rest.split_first_chunk::<8>()?;
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    let (found, rest) = rest.split_first_chunk::<16>()?;
    let (sum, packed) = rest.split_first_chunk::<4>()?;
    if crc32fast::hash(packed) != u32::from_le_bytes(*sum) || count > MOST_ROWS {
        return None;
    }
    let mut rows = vec![0_u64; count];
    let filled = zstd::bulk::decompress_to_buffer(packed, rows.as_mut_bytes()).ok()?;
    (filled == count * 8).then(|| Table { rows, found: counted(found) })
}

fn counted(bytes: &[u8; 16]) -> Found {
    let word = |n: usize| bytes.get(n * 4..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w));
    Found { functions: word(0), damaged: word(1), overlapping: word(2), unsupported: word(3) }
}

fn store(folder: &Folder, file: &Path, table: &Table) -> io::Result<()> {
    let packed = zstd::bulk::compress(table.rows.as_bytes(), LEVEL)?;
    let Found { functions, damaged, overlapping, unsupported } = table.found;
    let mut bytes = MAGIC.to_vec();
    bytes.extend((table.rows.len() as u64).to_le_bytes());
    bytes.extend([functions, damaged, overlapping, unsupported].into_iter().flat_map(u32::to_le_bytes));
    bytes.extend(crc32fast::hash(&packed).to_le_bytes());
    bytes.extend(packed);
    folder.store(file, &bytes)
}
