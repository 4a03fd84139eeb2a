//! Programs that have TensorFlow linked in and were stripped: no symbol tells, but the names of C++ types do.

use std::path::Path;

use memchr::memmem::Finder;

use super::{Elf, Result, Segment, Table};
use crate::catalogue::TYPE_NAMES;

/// Read at once.
const STEP: u64 = 1 << 20;

/// Is this a program with TensorFlow inside that has no names for its functions? Reads all its data, so only files as
/// large as such a program are looked at.
///
/// # Errors
/// When the file cannot be read or is no ELF file of this machine.
pub fn nameless(path: &Path) -> Result<bool> {
    let elf = Elf::open(path)?;
    if !elf.is_executable() || elf.len() < super::STATIC_TENSORFLOW || elf.has_table(Table::Full)? {
        return Ok(false);
    }
    let finders: Vec<Finder> = TYPE_NAMES.iter().map(Finder::new).collect();
    // A name may lie across two steps.
    let overlap = TYPE_NAMES.iter().map(|name| name.len() as u64).max().unwrap_or(0);
    for Segment { offset, file_size, .. } in elf.loads.iter().filter(|segment| !segment.executable) {
        let end = offset.saturating_add(*file_size).min(elf.len());
        let mut at = *offset;
        while at < end {
            let bytes = elf.bytes(at, (STEP + overlap).min(end - at))?;
            if finders.iter().any(|finder| finder.find(&bytes).is_some()) {
                return Ok(true);
            }
            at += STEP;
        }
    }
    Ok(false)
}
