//! Resident memory in parts that do not overlap.

use std::{collections::BTreeMap, fs, ops::Range};

use super::{
    heap::{Heap, Mapped},
    model::{Mapping, Part},
    pools::Pool,
    pymalloc::Pools,
    space::{Area, Space},
};
use crate::event::MappingKind;

/// All that was found where.
pub struct Places<'a> {
    pub space: &'a Space,
    pub heap: Option<&'a Heap>,
    pub mapped: &'a Mapped,
    pub python: &'a Pools,
    pub pools: &'a [(String, Pool)],
    /// Stack pointers of the threads.
    pub stacks: &'a [u64],
}

impl Places<'_> {
    /// The parts, and what of the process's own memory is none of them.
    #[must_use]
    pub fn parts(&self) -> (Vec<Part>, u64) {
        let mut parts = Vec::new();
        let mut add = |what: &str, bytes: u64| {
            if bytes > 0 {
                parts.push(Part { what: what.to_owned(), bytes });
            }
        };
        let mut own = 0;
        let mut count = |bytes: u64| {
            own += bytes;
            bytes
        };
        let (in_blocks, in_arenas) = self.regions();
        for (name, pool) in self.pools {
            let used: u64 =
                pool.chunks.iter().filter(|chunk| chunk.in_use).map(|chunk| self.bytes(chunk.start, chunk.size)).sum();
            let all: u64 = pool.regions.iter().map(|&(start, size)| self.bytes(start, size)).sum();
            add(&format!("pool \"{name}\" in use"), count(used));
            add(&format!("pool \"{name}\" free"), count(all.saturating_sub(used)));
        }
        if let Some(heap) = self.heap {
            let all: u64 = heap.segments.all().iter().map(|segment| self.space.own_bytes(segment.range.clone())).sum();
            let (mut free, mut trimmable) = (0, 0);
            for arena in &heap.arenas {
                free += arena.free.resident;
                trimmable += arena.free.trimmable;
            }
            let heads: u64 = heap.arenas.iter().filter(|arena| !arena.main).map(|arena| arena.heads).sum();
            add("heap in use", count((all + heads).saturating_sub(free + in_arenas)));
            add("heap free, trimmable", count(trimmable));
            add("heap free, not trimmable", count(free.saturating_sub(trimmable)));
        }
        let blocks: u64 = self.mapped.all().iter().map(|block| self.space.own_bytes(block.range())).sum();
        add("large blocks in use", count(blocks.saturating_sub(in_blocks)));
        let python: u64 = self.python.all().iter().map(|pool| self.bytes(pool.start, self.python.pool_bytes())).sum();
        add("Python objects (pymalloc)", count(python));
        add("stacks", count(self.stack_bytes()));
        let changed: u64 = self.space.areas.iter().filter(|area| area.is_file()).map(|area| area.resident.own).sum();
        add("data of programs and libraries", count(changed));
        let unexplained = self.space.all_own_bytes().saturating_sub(own);
        let shared = |kind| -> u64 {
            self.space.areas.iter().filter(|area| area.kind == kind).map(|area| area.resident.shared).sum()
        };
        add("files", shared(MappingKind::File));
        add("shared memory", shared(MappingKind::Shared) + shared(MappingKind::Anonymous));
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        (parts, unexplained)
    }

    fn bytes(&self, start: u64, len: u64) -> u64 {
        self.space.own_bytes(start..start.saturating_add(len))
    }

    /// Resident bytes of pools' regions in large blocks, and in arenas.
    fn regions(&self) -> (u64, u64) {
        let (mut blocks, mut arenas) = (0, 0);
        for &(start, size) in self.pools.iter().flat_map(|(_, pool)| &pool.regions) {
            let bytes = self.bytes(start, size);
            if self.mapped.block(start).is_some() {
                blocks += bytes;
            } else if self.heap.is_some_and(|heap| heap.segments.segment(start).is_some()) {
                arenas += bytes;
            }
        }
        (blocks, arenas)
    }

    /// The first thread's stack has a name; those of others are mappings that hold their stack pointer. What else lies
    /// in the same mapping is not a part of it.
    fn stack_bytes(&self) -> u64 {
        let mut areas: Vec<&Area> = self.space.areas.iter().filter(|area| area.kind == MappingKind::Stack).collect();
        let others = self.stacks.iter().filter_map(|&pointer| self.space.area(pointer));
        areas.extend(others.filter(|area| area.is_anonymous() && area.kind != MappingKind::Heap));
        areas.sort_by_key(|area| area.range.start);
        areas.dedup_by_key(|area| area.range.start);
        areas.iter().map(|area| self.space.own_bytes(area.range.clone()).saturating_sub(self.inside(&area.range))).sum()
    }

    fn inside(&self, area: &Range<u64>) -> u64 {
        let mut bytes = 0;
        let blocks = self.mapped.all().iter().map(super::heap::Block::range);
        let pools = self.python.all().iter().map(|pool| pool.start..pool.start + self.python.pool_bytes());
        let segments = self.heap.into_iter().flat_map(|heap| heap.segments.all()).map(|segment| segment.range.clone());
        for range in blocks.chain(pools).chain(segments) {
            if range.start < area.end && area.start < range.end {
                bytes += self.space.own_bytes(range.start.max(area.start)..range.end.min(area.end));
            }
        }
        bytes
    }

    /// Mappings of files with what of them is resident, the largest first.
    #[must_use]
    pub fn files(&self) -> Vec<Mapping> {
        let mut files: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let named = |area: &&Area| matches!(area.kind, MappingKind::File | MappingKind::Shared);
        for area in self.space.areas.iter().filter(named) {
            let (bytes, resident) = files.entry(&area.name).or_default();
            *bytes += area.range.end - area.range.start;
            *resident += area.resident.own + area.resident.shared;
        }
        let files = files.into_iter().filter(|(_, (_, resident))| *resident > 0);
        let mut files: Vec<Mapping> = files
            .map(|(what, (bytes, resident_bytes))| Mapping { what: what.to_owned(), bytes, resident_bytes })
            .collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.resident_bytes));
        files
    }
}

/// Where the threads' stacks end. Threads that run have none to be read.
#[must_use]
pub fn stack_pointers(pid: u32) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let pointer = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("syscall")).ok()?;
        let mut fields = text.split_whitespace().rev();
        fields.next()?;
        u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()
    };
    tasks.filter_map(pointer).collect()
}
