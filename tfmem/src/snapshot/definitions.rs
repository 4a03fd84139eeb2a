//! What functions and graphs take in the C heap: nodes, attributes, constants, and what hangs on them.
//!
//! From each object that describes a function or a graph the search goes on to the blocks and the parts of descriptions
//! that it points to; then to the blocks without a class that point to such an object (a graph's nodes) and on from there.
//! What is another's is not gone into: a kernel, a tensor, a Python object. Some 6 MiB of TensorFlow's registry of ops may
//! be reached all the same, by words that are left over in blocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rustc_hash::{FxHashMap, FxHashSet};
use zerocopy::IntoBytes as _;

use super::{
    heap::Chunk,
    messages,
    model::Holder,
    objects::Kind,
    owners::Found,
    python_type,
    scan::{Read, Reader},
    text_in,
};
use crate::{event::HolderKind, names, target::memory::Memory};

/// Blocks gone through, words read of each, and names kept.
const MOST_BLOCKS: usize = 1 << 22;
const MOST_WORDS: u64 = 1 << 17;
const MOST_NAMES: usize = 1 << 16;
/// Python takes smaller objects from arenas of its own: what lies in such a block and looks like one is a rest of another.
const LEAST_PYTHON: u64 = 512;
/// How an object that is a function's record is called, and its parts.
const RECORD: &str = "tensorflow::FunctionRecord";
const OLD_RECORD: &str = "tensorflow::FunctionLibraryDefinition::FunctionDefAndOpRegistration";
const SIGNATURE: &str = "tensorflow::OpDef";

/// One for each traced function, by name, and one for what is left: graphs.
#[must_use]
pub fn holders<M: Memory>(found: &Found<'_, '_, M>) -> (Vec<Holder>, Read) {
    let mut reach = Reach { found, seen: FxHashSet::default(), types: FxHashMap::default(), words: Vec::new() };
    // What hangs on a table is the table's.
    for (_, object) in found.classes.of(Kind::Table).chain(found.classes.of(Kind::Resource)) {
        reach.object(object);
    }
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    let described: Vec<(Arc<str>, u64)> =
        found.classes.of(Kind::Definition).map(|(class, object)| (class.name.clone(), object)).collect();
    let is_record = |class: &str| class == RECORD || class == OLD_RECORD;
    for (_, object) in described.iter().filter(|(class, _)| is_record(class)) {
        let Some(full) = name(found, *object) else { continue };
        let (bytes, _) = reach.object(*object);
        let function = functions.entry(names::function(&full).to_owned()).or_default();
        function.bytes += bytes;
        if function.traces.len() < MOST_NAMES {
            function.traces.insert(names::whole(&full).to_owned());
        }
    }
    let (mut bytes, mut blocks) = (0, 0);
    let mut add = |(more, count)| {
        bytes += more;
        blocks += count;
    };
    described.iter().for_each(|(_, object)| add(reach.object(*object)));
    let (parents, read) = parents(found, &described);
    parents.into_iter().for_each(|parent| add(reach.blocks(parent)));
    messages::arenas(found).into_iter().for_each(|arena| add(reach.blocks(arena)));
    let graphs = Holder {
        owner: "graph".to_owned(),
        class: "definitions of nodes".to_owned(),
        bytes,
        count: blocks,
        kind: HolderKind::Graph,
        complete: true,
        ..Holder::default()
    };
    let functions = functions.into_iter().map(|(name, function)| Holder {
        owner: "function".to_owned(),
        class: RECORD.to_owned(),
        bytes: function.bytes,
        count: function.count(),
        name: Some(name),
        kind: HolderKind::Function,
        complete: true,
        ..Holder::default()
    });
    (functions.chain((blocks > 0).then_some(graphs)).collect(), read)
}

#[derive(Default)]
struct Function {
    bytes: u64,
    traces: BTreeSet<String>,
}

impl Function {
    /// Traces: a trace that was differentiated has a forward and a backward function of its own beside it.
    fn count(&self) -> u64 {
        let forward = self.traces.iter().filter(|name| !name.starts_with("__backward_")).count();
        let inference = self.traces.iter().filter(|name| name.starts_with("__inference_")).count();
        if inference > 0 { inference as u64 } else { forward as u64 }
    }
}

/// The name of the function that a record describes: the first text of its signature.
fn name<M: Memory>(found: &Found<'_, '_, M>, record: u64) -> Option<String> {
    let chunk = found.heap.segments.chunk(record)?;
    let words = |chunk: &Chunk| (chunk.data()..chunk.data_end()).step_by(8).take(256);
    let word = |at| found.memory.word(at).ok();
    let signatures = words(&chunk)
        .filter_map(word)
        .filter_map(|word| found.heap.segments.chunk(word))
        .filter(|to| to.live && found.class(to.data()).is_some_and(|class| &*class.name == SIGNATURE));
    signatures.into_iter().find_map(|signature| {
        let text = |at| text_in::std_string(found.memory, word(at)? & !3);
        words(&signature).skip(1).filter_map(text).find(|text| text.starts_with("__"))
    })
}

struct Reach<'a, 'b, 'c, M> {
    found: &'c Found<'a, 'b, M>,
    seen: FxHashSet<u64>,
    types: FxHashMap<u64, Option<Arc<str>>>,
    words: Vec<u64>,
}

impl<M: Memory> Reach<'_, '_, '_, M> {
    /// Bytes and number of the blocks from an object on that were not reached before.
    fn object(&mut self, object: u64) -> (u64, u64) {
        self.found.heap.segments.chunk(object).map_or((0, 0), |chunk| self.blocks(chunk))
    }

    fn blocks(&mut self, first: Chunk) -> (u64, u64) {
        if !self.seen.insert(first.start) {
            return (0, 0);
        }
        let (mut bytes, mut count) = (0, 0);
        let mut queue = vec![first];
        while let Some(chunk) = queue.pop() {
            bytes += chunk.size;
            count += 1;
            self.words.resize(((chunk.data_end() - chunk.data()) / 8).min(MOST_WORDS) as usize, 0);
            if self.found.memory.read(chunk.data(), self.words.as_mut_bytes()).is_err() {
                continue;
            }
            let describes = self.words.first().and_then(|&word| self.found.classes.known(word));
            let describes = describes.is_some_and(|class| owns_signature(&class.name));
            let words = std::mem::take(&mut self.words);
            for &word in &words {
                if let Some(next) = self.next(word, describes)
                    && self.seen.len() < MOST_BLOCKS
                    && self.seen.insert(next.start)
                {
                    queue.push(next);
                }
            }
            self.words = words;
        }
        (bytes, count)
    }

    /// Tensors' data and regions of pools are told with who holds them.
    fn is_data(&self, chunk: &Chunk) -> bool {
        let next = self.found.data.partition_point(|range| range.end <= chunk.data());
        self.found.data.get(next).is_some_and(|range| range.start < chunk.end())
    }

    /// The block that a pointer leads to the beginning of, if it is part of a description. The lowest bits of a pointer
    /// may be a mark, and a hash table's begins a word behind its block's.
    fn next(&mut self, word: u64, signatures_too: bool) -> Option<Chunk> {
        let start = word.checked_sub(16)? & !15;
        let chunk = match self.found.heap.segments.segment(start) {
            Some(segment) => segment.is_live(start).then(|| segment.chunk(start)).flatten()?,
            None => {
                let block = self.found.mapped.block(word).filter(|block| block.data == word & !15)?;
                Chunk { start: block.data - 16, size: block.range().end - block.data + 16, live: true }
            }
        };
        if self.seen.contains(&chunk.start) || self.is_data(&chunk) {
            return None;
        }
        let first = self.found.memory.word(chunk.data()).ok()?;
        match self.found.classes.known(first) {
            Some(class) if class.kind == Kind::Definition || is_part(&class.name) => Some(chunk),
            Some(class) => (signatures_too && owns_signature(&class.name)).then_some(chunk),
            None => (!is_python(self.found, &chunk, &mut self.types)).then_some(chunk),
        }
    }
}

/// Does a Python object lie in a block?
fn is_python<M: Memory>(found: &Found<'_, '_, M>, chunk: &Chunk, types: &mut FxHashMap<u64, Option<Arc<str>>>) -> bool {
    chunk.size > LEAST_PYTHON && python_type::name(found.memory, chunk.data(), chunk.size, types).is_some()
}

/// Messages that only occur inside others. Those of the registry of ops hang on it alone.
fn is_part(class: &str) -> bool {
    let parts = ["AttrValue", "TensorProto", "TensorShapeProto", "FullTypeDef", "NameAttrList", "VersionDef"];
    class.strip_prefix("tensorflow::").is_some_and(|name| parts.iter().any(|part| name.starts_with(part)))
}

/// What a function's own signature is made of.
fn owns_signature(class: &str) -> bool {
    class == RECORD || class == OLD_RECORD || class == "tensorflow::FunctionDef" || class.starts_with(SIGNATURE)
}

/// Blocks without a class, not Python's, that point to the beginning of a description: a graph's nodes.
fn parents<M: Memory>(found: &Found<'_, '_, M>, described: &[(Arc<str>, u64)]) -> (Vec<Chunk>, Read) {
    let nodes = described.iter().filter(|(class, _)| class.contains("NodeProperties"));
    // Behind its vtable and counts the object itself begins.
    let targets: FxHashSet<u64> = nodes.flat_map(|(_, object)| [*object, object + 16]).collect();
    let mut parents: FxHashMap<u64, Chunk> = FxHashMap::default();
    let (least, most) = (targets.iter().min().copied().unwrap_or(0), targets.iter().max().copied().unwrap_or(0));
    if targets.is_empty() {
        return (Vec::new(), Read::default());
    }
    let mut reader = Reader::new(found.memory, found.space);
    let read = reader.each(&found.sources.plain, found.data, |start, words| {
        for (at, &word) in (start..).step_by(8).zip(words) {
            if word < least || word > most || !targets.contains(&word) {
                continue;
            }
            let chunk =
                found.heap.segments.chunk(at.saturating_sub(8)).filter(|chunk| chunk.live && at >= chunk.data());
            parents.extend(chunk.map(|chunk| (chunk.start, chunk)));
        }
    });
    let mut types = FxHashMap::default();
    let mut parents: Vec<Chunk> = parents.into_values().collect();
    parents.retain(|chunk| {
        let classless = found.memory.word(chunk.data()).is_ok_and(|first| found.classes.known(first).is_none());
        classless && !is_python(found, chunk, &mut types)
    });
    parents.sort_unstable_by_key(|chunk| chunk.start);
    (parents, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_counts_once_with_its_gradient() {
        let traces = ["__inference_f_1", "__forward_f_2", "__backward_f_3", "__inference_f_4"].map(str::to_owned);
        assert_eq!(Function { bytes: 0, traces: traces.into() }.count(), 2);
        let traces = ["__forward_f_2", "__backward_f_3"].map(str::to_owned);
        assert_eq!(Function { bytes: 0, traces: traces.into() }.count(), 1);
    }

    #[test]
    fn the_registry_of_ops_is_no_part() {
        assert!(is_part("tensorflow::AttrValue_ListValue") && is_part("tensorflow::TensorProto"));
        assert!(!is_part("tensorflow::OpDef") && !is_part("tensorflow::KernelDef") && !is_part("tsl::AttrValue"));
    }
}
