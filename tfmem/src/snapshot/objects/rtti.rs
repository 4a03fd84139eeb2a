//! The class that a vtable belongs to, by C++'s own run-time type information: a stripped library has it, too.
//!
//! Before a vtable's first function lie the offset to the whole object and the type's description; that has a pointer
//! to the mangled name in its second word.

use std::{cell::RefCell, fs::File, os::unix::fs::FileExt as _, path::PathBuf};

use cpp_demangle::{DemangleOptions, Symbol};
use rustc_hash::FxHashMap;

use crate::{
    snapshot::{space::Area, space::Space, text_in},
    target::memory::Memory,
};

/// Reads what a library holds: pages that the process changed from its memory, all others from the file, so that no
/// page becomes resident that was not.
pub struct Static<'a, M> {
    memory: &'a M,
    space: &'a Space,
    pid: u32,
    files: RefCell<FxHashMap<u64, Option<File>>>,
}

impl<'a, M: Memory> Static<'a, M> {
    #[must_use]
    pub fn new(memory: &'a M, space: &'a Space, pid: u32) -> Self {
        Self { memory, space, pid, files: RefCell::default() }
    }

    /// `false`: it could not be read.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(buffer.len() as u64) else { return false };
        if self.space.own_until(address).is_some_and(|until| until >= end) {
            return self.memory.read(address, buffer).is_ok();
        }
        let Some(area) = self.space.area(address).filter(|area| area.is_file() && end <= area.range.end) else {
            return false;
        };
        let mut files = self.files.borrow_mut();
        let file = files.entry(area.range.start).or_insert_with(|| open(self.pid, area));
        let offset = area.offset + (address - area.range.start);
        file.as_ref().is_some_and(|file| file.read_exact_at(buffer, offset).is_ok())
    }

    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word).then(|| u64::from_le_bytes(word))
    }

    /// The demangled name of the class whose objects begin with `vtable`.
    #[must_use]
    pub fn class(&self, vtable: u64) -> Option<String> {
        // A part of an object has an offset; only whole ones are counted.
        if !vtable.is_multiple_of(8) || self.word(vtable.checked_sub(16)?)? != 0 {
            return None;
        }
        let description = self.word(vtable - 8).filter(|&word| word != 0 && word.is_multiple_of(8))?;
        let own_vtable = self.word(description)?;
        self.space.area(own_vtable).filter(|area| area.is_file())?;
        let name = text_in::until_zero(|at, buffer| self.read(at, buffer), self.word(description.checked_add(8)?)?)?;
        demangled(&name)
    }
}

fn open(pid: u32, area: &Area) -> Option<File> {
    let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", area.range.start, area.range.end));
    // Not everybody may use the first; the second needs the file to be where it was.
    File::open(mapped).or_else(|_| File::open(format!("/proc/{pid}/root{}", area.name))).ok()
}

/// A type's mangled name (`N10tensorflow3VarE`), readable.
fn demangled(name: &[u8]) -> Option<String> {
    // The star says that the name is not the same everywhere.
    let name = name.strip_prefix(b"*").unwrap_or(name);
    let printable = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
    if !printable(name) {
        return None;
    }
    let symbol = Symbol::new([b"_ZTS", name].concat()).ok()?;
    let text = symbol.demangle_with_options(&DemangleOptions::new()).ok()?;
    Some(text.strip_prefix("typeinfo name for ")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_readable() {
        assert_eq!(demangled(b"N10tensorflow3VarE").as_deref(), Some("tensorflow::Var"));
        assert_eq!(
            demangled(b"*N10tensorflow12_GLOBAL__N_16BufferIfEE").as_deref(),
            Some("tensorflow::(anonymous namespace)::Buffer<float>")
        );
        assert_eq!(demangled(b""), None);
        assert_eq!(demangled(b"\x01\x02"), None);
        assert_eq!(demangled(b"no name"), None);
    }
}
