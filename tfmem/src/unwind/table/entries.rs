//! The entries of `.eh_frame`, one at a time: bounded memory however large the section is, and an end whatever it says.
//!
//! Each function's entry (FDE) is handed to gimli as a section of its own, with the entry that it shares with others
//! (CIE) in front. Layout: Linux Standard Base, "DWARF extensions", `.eh_frame`.

use std::collections::HashMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, FrameDescriptionEntry, LittleEndian, UnwindSection as _};

use crate::attach::elf::{Elf, Frames, Result};

/// Read at once.
const WINDOW: u64 = 1 << 20;
/// No real entry is longer.
const LONGEST: u64 = 1 << 18;
/// Shared entries that are remembered; a library has a handful.
const REMEMBERED: usize = 1024;

pub type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;

/// Gets a function's entry, and the section and bases that it is to be read with. Says whether it could read it.
pub type Visit<'a> = &'a mut dyn FnMut(&EhFrame<Slice<'_>>, &BaseAddresses, &FrameDescriptionEntry<Slice<'_>>) -> bool;

/// Walks the section and hands each function's entry on.
pub struct Entries<'a> {
    elf: &'a Elf,
    frames: Frames,
    /// Offset of the next entry.
    at: u64,
    window: Vec<u8>,
    window_at: u64,
    shared: HashMap<u64, Vec<u8>>,
    /// The section made for one function.
    pair: Vec<u8>,
    damaged: u32,
}

enum Entry {
    Shared,
    /// Length, offset of the shared entry.
    Function {
        len: u64,
        shared: u64,
    },
    Nothing,
}

impl<'a> Entries<'a> {
    pub fn new(elf: &'a Elf, frames: Frames) -> Self {
        Self {
            elf,
            frames,
            at: 0,
            window: Vec::new(),
            window_at: 0,
            shared: HashMap::new(),
            pair: Vec::new(),
            damaged: 0,
        }
    }

    /// Entries that make no sense, so far.
    pub const fn damaged(&self) -> u32 {
        self.damaged
    }

    /// Hands the next function to `visit`; `false`: there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn next(&mut self, visit: Visit<'_>) -> Result<bool> {
        while self.at + 4 <= self.frames.size {
            let start = self.at;
            match self.entry()? {
                Entry::Shared | Entry::Nothing => {}
                Entry::Function { len, shared } => {
                    if !self.join(start, len, shared)? || !self.parse(start, visit) {
                        self.damaged += 1;
                    }
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Reads an entry's head and goes behind it. Goes on by at least four bytes.
    fn entry(&mut self) -> Result<Entry> {
        let start = self.at;
        let Some([len, id]) = self.words(start)? else {
            self.at = self.frames.size;
            return Ok(Entry::Nothing);
        };
        self.at = start + 4;
        if len == 0 {
            // A terminator: of one of the parts that the linker put together.
            return Ok(Entry::Nothing);
        }
        let end = start + 4 + u64::from(len);
        if len == u32::MAX || len < 4 || end > self.frames.size {
            // The 64-bit form is made by nobody. There is no way to find the next entry.
            self.damaged += 1;
            self.at = self.frames.size;
            return Ok(Entry::Nothing);
        }
        self.at = end;
        if id == 0 {
            return Ok(Entry::Shared);
        }
        match (start + 4).checked_sub(u64::from(id)) {
            Some(shared) if u64::from(len) + 4 <= LONGEST => Ok(Entry::Function { len: u64::from(len) + 4, shared }),
            _ => {
                self.damaged += 1;
                Ok(Entry::Nothing)
            }
        }
    }

    /// Puts a function's entry behind its shared entry. `false`: the latter makes no sense.
    fn join(&mut self, start: u64, len: u64, shared: u64) -> Result<bool> {
        if !self.shared.contains_key(&shared) {
            let Some([size, 0]) = self.words(shared)? else { return Ok(false) };
            let size = u64::from(size) + 4;
            if size > LONGEST || shared + size > self.frames.size {
                return Ok(false);
            }
            let bytes = self.elf.frames_at(self.frames, shared, size)?;
            if self.shared.len() >= REMEMBERED {
                self.shared.clear();
            }
            self.shared.insert(shared, bytes);
        }
        self.fill(start, len)?;
        let Some(shared) = self.shared.get(&shared) else { return Ok(false) };
        let begin = (start - self.window_at) as usize;
        let Some(own) = self.window.get(begin..begin + len as usize) else { return Ok(false) };
        self.pair.clear();
        self.pair.extend_from_slice(shared);
        self.pair.extend_from_slice(own);
        // The way back to the shared entry, which lies elsewhere now.
        let field = shared.len() + 4;
        if let Some(pointer) = self.pair.get_mut(field..field + 4) {
            pointer.copy_from_slice(&(field as u32).to_le_bytes());
        }
        Ok(true)
    }

    fn parse(&self, start: u64, visit: Visit<'_>) -> bool {
        let section = EhFrame::new(&self.pair, LittleEndian);
        let own = self.pair.len() as u64 - (self.at - start);
        // Addresses count from where they are written down.
        let base = self.frames.address.wrapping_add(start).wrapping_sub(own);
        let bases = BaseAddresses::default().set_eh_frame(base);
        let mut entries = section.entries(&bases);
        let Ok(Some(CieOrFde::Cie(cie))) = entries.next() else { return false };
        let Ok(Some(CieOrFde::Fde(partial))) = entries.next() else { return false };
        let Ok(function) = partial.parse(|_, _, _| Ok(cie.clone())) else { return false };
        visit(&section, &bases, &function)
    }

    /// Two words at an offset; `None`: not that much is left.
    fn words(&mut self, at: u64) -> Result<Option<[u32; 2]>> {
        if at >= self.frames.size {
            return Ok(None);
        }
        let len = (self.frames.size - at).min(8);
        // A shared entry may lie far behind: the window stays where it is.
        let far;
        let bytes = if at >= self.window_at {
            self.fill(at, len)?;
            let begin = (at - self.window_at) as usize;
            self.window.get(begin..).unwrap_or_default()
        } else {
            far = self.elf.frames_at(self.frames, at, len)?;
            &far
        };
        let word = |n: usize| bytes.get(n..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk));
        Ok(word(0).map(|first| [first, word(4).unwrap_or(0)]))
    }

    /// Makes the window hold this range, which does not lie before it.
    fn fill(&mut self, at: u64, len: u64) -> Result<()> {
        let end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len > end {
            self.window = self.elf.frames_at(self.frames, at, WINDOW.max(len))?;
            self.window_at = at;
        }
        Ok(())
    }
}
