//! Where a Python object is kept that holds a tensor: one pass through the memory of Python's objects and the arenas.
//!
//! In the table of a dict (attributes, globals, arguments) the key lies right before the value, in all versions from 3.8 to
//! 3.14: a `str` there is the name. What an object keeps inline (3.11 and later, most attributes) has no key beside it.

use super::{graph::Place, search::Search, targets::Targets};
use crate::{
    snapshot::{
        objects::Kind,
        python_type,
        scan::{Read, Reader},
        text_in,
    },
    target::memory::Memory,
};

/// Less in all than this is not worth the pass.
const WORTH: u64 = 1 << 20;
/// So many objects are asked for.
const MOST_ASKED: usize = 4096;

/// `PyASCIIObject`: its length, and where its text lies, up to 3.11 and since.
const LENGTH: u64 = 16;
const TEXT: [u64; 2] = [48, 40];
const LONGEST: u64 = 100;

impl<M: Memory> Search<'_, '_, '_, M> {
    /// `bytes`: of the data of the first nodes.
    pub fn ask_python(&mut self, bytes: &[u64]) -> Read {
        let (asked, held) = self.asked(bytes);
        if held < WORTH {
            return Read::default();
        }
        let object = |&node: &usize| {
            let range = self.graph.nodes.get(node)?.range.clone();
            let start = python_type::start(self.found.memory, &range, &mut self.types)?;
            Some((start..start + 8, node, true))
        };
        let targets = Targets::new(asked.iter().filter_map(object).collect());
        let mut reader = Reader::new(self.found.memory, self.found.space);
        let mut read = Read::default();
        for ranges in [&self.found.sources.python, &self.found.sources.plain] {
            read += reader.each(ranges, self.found.data, |start, words| {
                for (at, &word) in (start..).step_by(8).zip(words) {
                    self.meet(&targets, at, word);
                }
            });
        }
        read
    }

    /// Python objects that hold handles of tensors, and how much the tensors have.
    fn asked(&self, bytes: &[u64]) -> (Vec<usize>, u64) {
        let nodes = &self.graph.nodes;
        let is_python = |node: usize| nodes.get(node).is_some_and(|node| matches!(node.place, Place::Python(Some(_))));
        let is_handle =
            |node: usize| nodes.get(node).is_some_and(|node| matches!(node.place, Place::Object(Kind::Handle, _)));
        let (mut asked, mut held) = (Vec::new(), 0);
        for (node, bytes) in nodes.iter().zip(bytes) {
            let handles = node.references.iter().filter(|reference| is_handle(reference.from));
            let objects =
                handles.flat_map(|handle| nodes.get(handle.from).into_iter().flat_map(|node| &node.references));
            let before = asked.len();
            asked.extend(objects.map(|reference| reference.from).filter(|&from| is_python(from)));
            held += if asked.len() > before { *bytes } else { 0 };
        }
        asked.sort_unstable();
        asked.dedup();
        asked.truncate(MOST_ASKED);
        (asked, held)
    }
}

/// The name under which the word at `at` is kept.
pub fn name(memory: &impl Memory, at: u64) -> Option<String> {
    let key = memory.word(at.checked_sub(8)?).ok().filter(|key| *key != 0 && key.is_multiple_of(8))?;
    (python_type::of(memory, key)? == "str").then_some(())?;
    let len = memory.word(key + LENGTH).ok().filter(|len| (1..=LONGEST).contains(len))?;
    let name = |text: u64| text_in::counted(memory, key + text, len).filter(|name| is_name(name));
    TEXT.into_iter().find_map(name)
}

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/:[]".contains(c))
}
