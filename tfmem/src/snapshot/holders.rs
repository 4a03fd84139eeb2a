//! The largest holders: tensors' data by who holds them, tables by what hangs on them.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use rustc_hash::FxHashSet;
use zerocopy::IntoBytes as _;

use super::{
    heap::{Chunk, Heap, Mapped, Segment},
    model::Holder,
    nearby::Nearby,
    objects::{Classes, Kind},
    owners::{self, Found, Graph},
    pools::Pool,
    scan::Read,
    scopes,
};
use crate::{event::Scope, target::memory::Memory};

/// `TensorBuffer`: its reference count and the address of its data (equal in all versions read).
const COUNT: u64 = 8;
const DATA: u64 = 16;

/// A tensor's buffer and where its data lie.
pub struct Buffer {
    object: u64,
    class: Arc<str>,
    /// Where its data begin, and what they lie in; `None`: in memory that is not the allocators' that are known.
    address: u64,
    data: Option<Range<u64>>,
    count: u64,
}

/// What was found of holders.
#[derive(Default)]
pub struct Held {
    pub holders: Vec<Holder>,
    /// Buffers, and those with at least as many references as they count.
    pub buffers: u64,
    pub complete: u64,
    pub read: Read,
}

/// All tensors' buffers.
#[must_use]
pub fn buffers<M: Memory>(
    memory: &Nearby<'_, M>,
    classes: &Classes<'_, M>,
    heap: &Heap,
    mapped: &Mapped,
    pools: &[(String, Pool)],
) -> Vec<Buffer> {
    let one = |(class, object): (&super::objects::Class, u64)| {
        let count = memory.int(object + COUNT).ok().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let address = memory.word(object + DATA).unwrap_or(0);
        let data = extent(address, heap, mapped, pools);
        Buffer { object, class: class.name.clone(), address, data, count }
    };
    classes.of(Kind::Buffer).map(one).collect()
}

/// The chunk of a pool or of the heap that data lie in.
fn extent(data: u64, heap: &Heap, mapped: &Mapped, pools: &[(String, Pool)]) -> Option<Range<u64>> {
    let chunk = pools.iter().find_map(|(_, pool)| pool.chunk(data));
    if let Some(chunk) = chunk {
        return chunk.in_use.then_some(chunk.start..chunk.start + chunk.size);
    }
    if let Some(block) = mapped.block(data) {
        return Some(block.range());
    }
    heap.segments.chunk(data).filter(|chunk| chunk.live).map(|chunk| chunk.start..chunk.end())
}

/// Ranges shorter than this are not worth to be left out.
const WORTH: u64 = 4096;

/// What is free in the heap.
#[must_use]
pub fn free_ranges(heap: &Heap) -> Vec<Range<u64>> {
    let free = heap.segments.all().iter().flat_map(Segment::chunks).filter(|chunk| !chunk.live && chunk.size >= WORTH);
    merged(free.map(|chunk| chunk.start..chunk.end()).collect())
}

/// Ranges where no pointers are looked for: tensors' data, pools' regions, what is free in the heap.
#[must_use]
pub fn data_ranges(buffers: &[Buffer], pools: &[(String, Pool)], free: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let data = buffers.iter().filter_map(|buffer| buffer.data.clone()).filter(|data| data.end - data.start >= WORTH);
    let regions = pools.iter().flat_map(|(_, pool)| &pool.regions).map(|&(start, size)| start..start + size);
    merged(data.chain(regions).chain(free).collect())
}

fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Who holds them.
#[must_use]
pub fn held<M: Memory>(found: &Found<'_, '_, M>, buffers: &[Buffer], pools: &[(String, Pool)]) -> Held {
    let of = |kind| found.classes.of(kind).map(move |(class, object)| (kind, class.name.clone(), object));
    let tables: Vec<(Kind, Arc<str>, u64)> = of(Kind::Table).chain(of(Kind::Resource)).collect();
    let of_buffers = buffers.iter().map(|buffer| (Kind::Buffer, buffer.class.clone(), buffer.object));
    let of_tables = tables.iter().cloned();
    let objects: Vec<_> = of_buffers.chain(of_tables).collect();
    let bytes: Vec<u64> =
        buffers.iter().map(|buffer| buffer.data.as_ref().map_or(0, |data| data.end - data.start)).collect();
    let (graph, read) = owners::search(found, &objects, &bytes);
    let scopes = scopes::devices(found);
    let scope = |owner: &owners::Owner| owner.device.and_then(|device| scopes.get(&device).copied());
    let mut held = Held { buffers: buffers.len() as u64, read, ..Held::default() };
    let mut groups: BTreeMap<Group, Holder> = BTreeMap::new();
    let mut seen = FxHashSet::default();
    for (index, buffer) in buffers.iter().enumerate() {
        let complete = is_complete(&graph, index, buffer.count);
        held.complete += u64::from(complete);
        // Two buffers over the same data: the bytes count once.
        let bytes = match &buffer.data {
            Some(data) if seen.insert(data.start) => data.end - data.start,
            _ => 0,
        };
        let owner = owners::owner(found.memory, &graph, index, buffer.count);
        let scope = owner.as_ref().and_then(&scope);
        let holder = add(&mut groups, owner, scope, (bytes, 1), complete);
        holder.blocks.push(buffer.address);
    }
    for (index, (kind, class, object)) in tables.iter().enumerate() {
        let mut owner = owners::Owner {
            kind: kind.holder(),
            what: kind.noun().to_owned(),
            class: class.to_string(),
            ..Default::default()
        };
        owners::add_holder(found.memory, &graph, buffers.len() + index, &mut owner);
        let scope = scope(&owner);
        add(&mut groups, Some(owner), scope, reach(found, *object), true);
    }
    for (name, pool) in pools {
        // Chunks that no tensor's buffer leads to: scratch memory, or a tensor of a kind that is not known.
        let rest = pool.chunks.iter().filter(|chunk| chunk.in_use && !seen.contains(&chunk.start));
        let (bytes, count) = rest.fold((0, 0), |(bytes, count), chunk| (bytes + chunk.size, count + 1));
        if count > 0 {
            let owner = owners::Owner {
                what: "no tensor".to_owned(),
                class: format!("chunks of pool {name}"),
                ..owners::Owner::default()
            };
            add(&mut groups, Some(owner), None, (bytes, count), false);
        }
    }
    held.holders = groups.into_values().collect();
    held.holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    held
}

/// As many references were found as the buffer counts; where a node has very many, not all were kept.
fn is_complete(graph: &Graph, node: usize, count: u64) -> bool {
    const KEPT: u64 = 32;
    graph.nodes.get(node).is_some_and(|node| node.references.len() as u64 >= count.min(KEPT))
}

type Group = (String, String, Option<String>, Option<String>, Option<Scope>);

fn add(
    groups: &mut BTreeMap<Group, Holder>,
    owner: Option<owners::Owner>,
    scope: Option<Scope>,
    (bytes, count): (u64, u64),
    complete: bool,
) -> &mut Holder {
    let owner = owner.unwrap_or_else(|| owners::Owner {
        what: "no holder found".to_owned(),
        class: "-".to_owned(),
        ..owners::Owner::default()
    });
    let key = (owner.what.clone(), owner.class.clone(), owner.name.clone(), owner.container.clone(), scope);
    let holder = groups.entry(key).or_insert_with(|| Holder {
        owner: owner.what,
        class: owner.class,
        name: owner.name,
        container: owner.container,
        chain: owner.chain,
        kind: owner.kind,
        scope,
        complete: true,
        ..Holder::default()
    });
    holder.bytes += bytes;
    holder.count += count;
    holder.complete &= complete;
    holder
}

/// Bytes and number of the blocks that hang on an object: what it points to, and on from there, without going through
/// other objects.
fn reach<M: Memory>(found: &Found<'_, '_, M>, object: u64) -> (u64, u64) {
    const MOST_BLOCKS: usize = 1 << 22;
    const MOST_WORDS: u64 = 1 << 17;
    let Some(first) = found.heap.segments.chunk(object) else { return (0, 0) };
    let mut seen = FxHashSet::default();
    seen.insert(first.start);
    let mut queue = vec![first];
    let (mut bytes, mut words) = (0, Vec::new());
    while let Some(chunk) = queue.pop() {
        bytes += chunk.size;
        words.resize(((chunk.data_end() - chunk.data()) / 8).min(MOST_WORDS) as usize, 0_u64);
        if found.memory.read(chunk.data(), words.as_mut_bytes()).is_err() {
            continue;
        }
        for &word in &words {
            if let Some(next) = block(found, word)
                && seen.len() < MOST_BLOCKS
                && seen.insert(next.start)
            {
                queue.push(next);
            }
        }
    }
    (bytes, seen.len() as u64)
}

/// The block in use, not an object with a class, that a pointer leads to the beginning of.
fn block<M: Memory>(found: &Found<'_, '_, M>, word: u64) -> Option<Chunk> {
    let start = word.checked_sub(16)?;
    let chunk = match found.heap.segments.segment(start) {
        Some(segment) => segment.is_live(start).then(|| segment.chunk(start)).flatten()?,
        None => {
            let block = found.mapped.block(word).filter(|block| block.data == word)?;
            Chunk { start, size: block.range().end - start, live: true }
        }
    };
    let first = found.memory.word(word).ok()?;
    found.classes.known(first).is_none().then_some(chunk)
}
