//! Stacks by their numbers, and the files that their frames are in.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tfmem_common::{
    python::is_code,
    unwind::{FRAME_ADDRESS, end},
};

use crate::event::{CodeFile, PythonCode, PythonPlace, Stack, StackId};

#[derive(Debug, Default)]
pub struct Stacks {
    by_id: FxHashMap<StackId, Arc<Stack>>,
    files: BTreeMap<u32, Arc<CodeFile>>,
    python: FxHashMap<u32, Arc<PythonPlace>>,
    bytes: Bytes,
}

/// Bytes that were handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    pub all: u64,
    pub with: u64,
    pub complete: u64,
}

/// A place in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// An address in a file's own address space.
    File { file: &'a CodeFile, address: u64 },
    /// An address of the process that no file shows.
    Nowhere { address: u64 },
    /// Python code; `None`: nobody said which.
    Python(Option<&'a PythonCode>),
}

impl Stacks {
    pub(crate) fn add(&mut self, stack: &Arc<Stack>) {
        self.by_id.insert(stack.id, stack.clone());
    }

    pub(super) fn add_file(&mut self, file: &Arc<CodeFile>) {
        self.files.insert(file.file, file.clone());
    }

    pub(crate) fn add_python(&mut self, place: &Arc<PythonPlace>) {
        self.python.insert(place.number, place.clone());
    }

    /// So much was handed out.
    pub(super) fn count(&mut self, bytes: u64, stack: Option<StackId>) {
        let known = stack.and_then(|id| self.get(id));
        let complete = known.is_some_and(|stack| stack.end == end::COMPLETE);
        let add = |sum: &mut u64, yes: bool| *sum = sum.saturating_add(if yes { bytes } else { 0 });
        let known = known.is_some();
        add(&mut self.bytes.all, true);
        add(&mut self.bytes.with, known);
        add(&mut self.bytes.complete, complete);
    }

    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        self.bytes
    }

    #[must_use]
    pub fn get(&self, id: StackId) -> Option<&Stack> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    #[must_use]
    pub fn place(&self, frame: u64) -> Place<'_> {
        let address = frame & FRAME_ADDRESS;
        if is_code(frame) {
            return Place::Python(self.python.get(&(address as u32)).map(|place| &place.code));
        }
        match self.files.get(&((frame >> 48) as u32)) {
            Some(file) => Place::File { file, address },
            None => Place::Nowhere { address },
        }
    }
}

impl CodeFile {
    /// Where in the file the byte at an address of its code is.
    #[must_use]
    pub fn offset(&self, address: u64) -> Option<u64> {
        let inside = |&&(_, start, size): &&(u64, u64, u64)| address.wrapping_sub(start) < size;
        let &(offset, start, _) = self.code.iter().find(inside)?;
        offset.checked_add(address - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_places_in_files() {
        let mut stacks = Stacks::default();
        let code = vec![(0x400, 0x1400, 0x100)];
        stacks.add_file(&Arc::new(CodeFile { file: 7, path: "/a.so".to_owned(), build_id: None, code }));
        let Place::File { file, address } = stacks.place(7 << 48 | 0x1410) else { unreachable!() };
        assert_eq!((file.path.as_str(), address, file.offset(address)), ("/a.so", 0x1410, Some(0x410)));
        assert_eq!(file.offset(0x1500), None);
        let id = StackId::MIN;
        stacks.add(&Arc::new(Stack { id, frames: vec![7 << 48 | 0x1410], end: end::COMPLETE }));
        stacks.count(3, Some(id));
        stacks.count(2, None);
        assert_eq!(stacks.bytes(), Bytes { all: 5, with: 3, complete: 3 });
        assert_eq!(stacks.place(0x7f00_0000_1000), Place::Nowhere { address: 0x7f00_0000_1000 });
    }
}
