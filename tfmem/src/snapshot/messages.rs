//! Protocol buffers that Python holds: each message lies in an arena of the library's own, which is taken from `malloc`
//! and belongs to a small Python object. TensorFlow's Python side keeps the constants of traced functions there.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use zerocopy::IntoBytes as _;

use super::{heap::Chunk, owners::Found, python_type};
use crate::target::memory::Memory;

/// The type, and its layout: reference count, type, the arena. 24 bytes, in a block of 32.
const TYPE: &str = "google._upb._message.Arena";
const BLOCK: u64 = 32;
const HEADER: u64 = 48;
/// What lies in a free block is the address of the next one: no count of references.
const MOST_REFERENCES: u64 = 1 << 32;

/// The blocks that arenas begin in.
#[must_use]
pub fn arenas<M: Memory>(found: &Found<'_, '_, M>) -> Vec<Chunk> {
    let mut types: FxHashMap<u64, Option<Arc<str>>> = FxHashMap::default();
    let mut words = vec![0_u64; (found.python.pool_bytes() / 8) as usize];
    let mut arenas = Vec::new();
    for pool in found.python.all().iter().filter(|pool| pool.block == BLOCK && pool.used > 0) {
        if found.memory.read(pool.start, words.as_mut_bytes()).is_err() {
            continue;
        }
        let objects = words.get((HEADER / 8) as usize..).unwrap_or_default().chunks_exact((BLOCK / 8) as usize);
        for (object, at) in objects.zip((pool.start + HEADER..).step_by(BLOCK as usize)) {
            let &[count, _, arena, _] = object else { continue };
            if count == 0 || count >= MOST_REFERENCES {
                continue;
            }
            // Of the whole object alone: what may lie before others does not lie before these.
            let is_arena = python_type::name(found.memory, at, 24, &mut types).is_some_and(|name| &*name == TYPE);
            let chunk = is_arena.then(|| found.heap.segments.chunk(arena)).flatten();
            arenas.extend(chunk.filter(|chunk| chunk.live));
        }
    }
    arenas
}
