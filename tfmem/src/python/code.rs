//! A code object's names.

use super::{Memory, Unreadable, Version, layout::Layout, lines};

/// Where a frame is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub file: String,
    /// Qualified from 3.11 on (`Trainer.fit`).
    pub function: String,
    /// `None`: the instruction has no line.
    pub line: Option<u32>,
}

/// Longer names are cut.
const MOST_CHARACTERS: u64 = 4096;
/// The table of a function of some ten thousand lines.
const MOST_TABLE: u64 = 1 << 20;
/// `PyVarObject.ob_size` and `PyBytesObject.ob_sval`; `PyASCIIObject.length` and `state`.
const BYTES_SIZE: u64 = 16;
const BYTES_DATA: u64 = 32;
const TEXT_LENGTH: u64 = 16;
const TEXT_STATE: u64 = 32;

/// What a code object says of itself, read out.
#[derive(Clone, Debug)]
pub struct Code {
    pub file: String,
    pub function: String,
    first_line: i32,
    table: Vec<u8>,
    version: Version,
}

impl Code {
    #[cfg(test)]
    pub(crate) fn of(file: &str, function: &str, first_line: i32) -> Self {
        let (file, function) = (file.to_owned(), function.to_owned());
        Self { file, function, first_line, table: Vec::new(), version: Version(3, 11) }
    }

    /// The line of the instruction at `offset` bytes (`None`: not begun, the first line).
    #[must_use]
    pub fn line(&self, offset: Option<u64>) -> Option<u32> {
        match offset {
            Some(offset) => lines::line(self.version, &self.table, self.first_line, offset),
            None => u32::try_from(self.first_line).ok(),
        }
    }
}

impl Layout {
    /// Reads a code object.
    ///
    /// # Errors
    /// When the object is none, or is gone.
    pub fn code(&self, memory: &impl Memory, code: u64) -> Result<Code, Unreadable> {
        let field = |offset: u64| memory.word(code.wrapping_add(offset));
        let read = Code {
            file: self.text(memory, field(self.code.filename)?)?,
            function: self.text(memory, field(self.code.qualified.unwrap_or(self.code.name))?)?,
            first_line: memory.int(code.wrapping_add(self.code.first_line))?,
            table: bytes(memory, field(self.code.lines)?)?,
            version: self.version,
        };
        // In the end: what was alive then was so before.
        alive(memory, code)?;
        Ok(read)
    }

    /// Reads what a code object is called and the line of the instruction at `offset` bytes (`None`: not begun, the
    /// first line).
    ///
    /// # Errors
    /// When the object is none, or is gone.
    pub fn place(&self, memory: &impl Memory, code: u64, offset: Option<u64>) -> Result<Place, Unreadable> {
        let code = self.code(memory, code)?;
        let line = code.line(offset);
        Ok(Place { file: code.file, function: code.function, line })
    }

    fn text(&self, memory: &impl Memory, object: u64) -> Result<String, Unreadable> {
        let length = memory.word(object.wrapping_add(TEXT_LENGTH))?;
        let state = memory.int(object.wrapping_add(TEXT_STATE))?.cast_unsigned() >> self.text.kind_bit;
        let (kind, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        if !compact || !matches!(kind, 1 | 2 | 4) || length > 1 << 32 {
            return Err(Unreadable::Nonsense);
        }
        let length = length.min(MOST_CHARACTERS) as usize;
        let start = object.wrapping_add(if ascii { self.text.ascii } else { self.text.wide });
        let raw = memory.bytes(start, length * kind as usize)?;
        alive(memory, object)?;
        // Each unit is one character, of one, two or four bytes.
        let unit = |unit: &[u8]| unit.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte));
        Ok(raw
            .chunks_exact(kind as usize)
            .map(|u| char::from_u32(unit(u)).unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect())
    }
}

/// An object that was freed has no references, or its allocator's pointer in the place of their count.
fn alive(memory: &impl Memory, object: u64) -> Result<(), Unreadable> {
    let count = memory.word(object)?;
    // From 3.14 on the upper bits are flags.
    if count as u32 == 0 || (count >> 32) as u16 != 0 { Err(Unreadable::Nonsense) } else { Ok(()) }
}

/// The contents of a `bytes` object.
fn bytes(memory: &impl Memory, object: u64) -> Result<Vec<u8>, Unreadable> {
    let size = memory.word(object.wrapping_add(BYTES_SIZE))?;
    if size > MOST_TABLE {
        return Err(Unreadable::Nonsense);
    }
    Ok(memory.bytes(object.wrapping_add(BYTES_DATA), size as usize)?)
}
