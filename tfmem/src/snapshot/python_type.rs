//! The type of a Python object, from the block that it lies in. Equal in CPython 3.8 to 3.14 (not free-threaded): a
//! reference count, the type; in a type object the name's address at +24.

use std::{ops::Range, sync::Arc};

use rustc_hash::FxHashMap;

use super::text_in;
use crate::target::memory::Memory;

const TYPE: u64 = 8;
const TYPE_NAME: u64 = 24;
/// Before an object may lie what the collector needs (16 bytes), and before that what holds its attributes (16 bytes).
const BEFORE: [u64; 3] = [0, 16, 32];

/// The name of the type of the object in a block.
pub fn name(
    memory: &impl Memory,
    block: u64,
    size: u64,
    known: &mut FxHashMap<u64, Option<Arc<str>>>,
) -> Option<Arc<str>> {
    BEFORE.into_iter().filter(|before| before + 16 <= size).find_map(|before| {
        let object = memory.word(block + before + TYPE).ok().filter(|word| *word != 0 && word.is_multiple_of(8))?;
        known.entry(object).or_insert_with(|| of_type(memory, object).map(Arc::from)).clone()
    })
}

/// Where the object in a block begins.
pub fn start(memory: &impl Memory, block: &Range<u64>, known: &mut FxHashMap<u64, Option<Arc<str>>>) -> Option<u64> {
    let starts = BEFORE.into_iter().map(|before| block.start + before).filter(|start| start + 16 <= block.end);
    starts.into_iter().find(|start| {
        let kind = memory.word(start + TYPE).ok().filter(|kind| *kind != 0 && kind.is_multiple_of(8));
        let Some(kind) = kind else { return false };
        known.entry(kind).or_insert_with(|| of_type(memory, kind).map(Arc::from)).is_some()
    })
}

/// The name of an object's type.
pub fn of(memory: &impl Memory, object: u64) -> Option<String> {
    of_type(memory, memory.word(object.checked_add(TYPE)?).ok().filter(|kind| *kind != 0 && kind.is_multiple_of(8))?)
}

/// The name of a type, if its own type leads to `type`, which is its own.
fn of_type(memory: &impl Memory, object: u64) -> Option<String> {
    let mut meta = memory.word(object.checked_add(TYPE)?).ok()?;
    for _ in 0..4 {
        let next = memory.word(meta.checked_add(TYPE)?).ok()?;
        if next == meta {
            let is_type = text(memory, meta)? == "type";
            return is_type.then(|| text(memory, object)).flatten();
        }
        meta = next;
    }
    None
}

fn text(memory: &impl Memory, object: u64) -> Option<String> {
    let name = memory.word(object.checked_add(TYPE_NAME)?).ok()?;
    let text = text_in::until_zero(|at, buffer| memory.read(at, buffer).is_ok(), name)?;
    let text = String::from_utf8(text).ok()?;
    let sane = |c: char| c.is_alphanumeric() || "._-<>".contains(c);
    (!text.is_empty() && text.chars().all(sane)).then_some(text)
}
