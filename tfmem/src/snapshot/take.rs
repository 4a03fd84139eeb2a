//! One process, stage by stage: mappings and resident pages, arenas, one pass, pools, holders, sums.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    allocator, checks, definitions,
    heap::{self, Heap, Mapped},
    holders, model,
    nearby::Nearby,
    objects::{Classes, Kind, Static},
    owners::Found,
    parts::{self, Places},
    pools::{Pool, Refused},
    pymalloc::Pools,
    scan::First,
    space::Space,
};
use crate::{
    observe,
    python::Runtime,
    target::{info, memory::Remote},
};

/// A pool that changes while it is read is read again.
const TRIES: usize = 3;
/// So many classes that do not matter to TensorFlow are shown, and so many holders and files.
const OTHER_CLASSES: usize = 40;
const MOST_HOLDERS: usize = 500;
const MOST_FILES: usize = 60;

/// Looks at a process.
///
/// # Errors
/// When it is gone or may not be read.
pub fn take(pid: u32) -> io::Result<model::Process> {
    let mut clock = Clock::default();
    let info = info::read(pid, true)?;
    let memory = Remote::open(pid)?;
    let totals = observe::snapshot::totals(pid)?;
    let space = Space::read(pid)?;
    clock.stage("mappings", 0);
    let heap = heap::read(&memory, &space);
    let walked = heap.as_ref().map_or(0, |heap| heap.arenas.iter().map(|arena| arena.system).sum());
    clock.stage("arenas", walked);
    let python = Runtime::find(pid).ok();
    let version = python.as_ref().map(|python| python.layout.version);
    clock.stage("python", 0);
    let library = Static::new(&memory, &space, pid);
    let mut first = First {
        heap: heap.as_ref(),
        mapped: Mapped::default(),
        python: Pools::of(version),
        classes: Classes::new(library, &space),
    };
    let read = first.run(&memory, &space);
    if let Some(parameters) = heap.as_ref().and_then(|heap| heap.parameters) {
        first.mapped.settle(parameters);
    }
    clock.stage("scan", read.bytes);
    let pools = read_pools(&memory, &first.classes);
    clock.stage("pools", 0);
    let named = named(&pools);
    let mut held = holders::Held::default();
    if let Some(heap) = &heap {
        let memory = Nearby::new(&memory);
        let buffers = holders::buffers(&memory, &first.classes, heap, &first.mapped, &named);
        let data = holders::data_ranges(&buffers, &named, heap);
        let data_and_python = holders::with_python(&data, &first.python);
        let found = Found {
            memory: &memory,
            space: &space,
            heap,
            mapped: &first.mapped,
            python: &first.python,
            classes: &first.classes,
            data: &data,
            data_and_python: &data_and_python,
        };
        held = holders::held(&found, &buffers, &named);
        let (definitions, read) = definitions::holders(&found);
        held.holders.extend(definitions);
        held.holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        held.read.lost += read.lost;
    }
    clock.stage("holders", held.read.bytes);
    let stacks = parts::stack_pointers(pid);
    let places = Places {
        space: &space,
        heap: heap.as_ref(),
        mapped: &first.mapped,
        python: &first.python,
        pools: &named,
        stacks: &stacks,
    };
    let (resident, unexplained_bytes) = places.parts();
    let mut mappings = places.files();
    mappings.truncate(MOST_FILES);
    let lost_heap: u64 = heap.iter().flat_map(|heap| &heap.arenas).map(|arena| arena.walked.lost).sum();
    let lost_bytes = read.lost + held.read.lost + lost_heap;
    clock.stage("sums", 0);
    let mut process = model::Process {
        pid,
        comm: info.comm,
        exe: info.exe,
        rss_bytes: totals.rss(),
        swapped_bytes: swapped(pid),
        heap: heap_model(&space, heap.as_ref(), &first.mapped),
        python: version.map(|version| python_model(&version.to_string(), &first.python)),
        pools: pools.iter().map(|pool| pool_model(&space, pool)).collect(),
        resident,
        unexplained_bytes,
        classes: classes(&first.classes),
        holders: held.holders,
        mappings,
        lost_bytes,
        stages: clock.stages,
        ..model::Process::default()
    };
    process.holders.truncate(MOST_HOLDERS);
    checks::fill(&mut process, heap.as_ref(), &first.mapped, (held.buffers, held.complete), first.classes.refused);
    Ok(process)
}

#[derive(Debug)]
struct Clock {
    last: Instant,
    stages: Vec<model::Stage>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { last: Instant::now(), stages: Vec::new() }
    }
}

impl Clock {
    fn stage(&mut self, name: &str, bytes: u64) {
        let spent: Duration = self.last.elapsed();
        self.stages.push(model::Stage { name: name.to_owned(), us: spent.as_micros() as u64, bytes });
        self.last = Instant::now();
    }
}

/// What became of a pool's object, with its class.
type Tried = (String, Result<Pool, Refused>);

fn read_pools(memory: &Remote, classes: &Classes<'_, Remote>) -> Vec<Tried> {
    let mut pools = Vec::new();
    for (class, object) in classes.of(Kind::Pool) {
        let size = class.bytes / class.count.max(1);
        let mut pool = Pool::read(memory, object, size);
        for _ in 1..TRIES {
            if pool.as_ref().is_ok_and(|pool| pool.in_use() == pool.said_in_use) {
                break;
            }
            pool = Pool::read(memory, object, size);
        }
        pools.push((class.name.to_string(), pool));
    }
    pools
}

/// Pools whose sum is what they say themselves: others are no ground to stand on.
fn named(pools: &[Tried]) -> Vec<(String, Pool)> {
    let sound =
        pools.iter().filter_map(|(_, pool)| pool.as_ref().ok()).filter(|pool| pool.in_use() == pool.said_in_use);
    sound.map(|pool| (pool.name.clone().unwrap_or_else(|| "no name".to_owned()), pool.clone())).collect()
}

fn pool_model(space: &Space, (class, pool): &Tried) -> model::Pool {
    let refused = |why: String| model::Pool { class: class.clone(), refused: Some(why), ..model::Pool::default() };
    let pool = match pool {
        Err(why) => return refused(why.to_string()),
        Ok(pool) if pool.in_use() != pool.said_in_use => {
            return model::Pool {
                name: pool.name.clone(),
                ..refused(format!(
                    "its chunks in use are {} bytes, its own statistics say {}",
                    pool.in_use(),
                    pool.said_in_use
                ))
            };
        }
        Ok(pool) => pool,
    };
    model::Pool {
        name: pool.name.clone(),
        class: class.clone(),
        regions: pool.regions.len() as u64,
        regions_bytes: pool.region_bytes(),
        resident_bytes: pool.regions.iter().map(|&(start, size)| space.own_bytes(start..start + size)).sum(),
        in_use_bytes: pool.in_use(),
        free_bytes: pool.region_bytes() - pool.in_use(),
        largest_free_bytes: pool.largest_free(),
        chunks: pool.chunks.len() as u64,
        refused: None,
    }
}

fn python_model(version: &str, pools: &Pools) -> model::Python {
    let used = pools.used_bytes();
    model::Python {
        version: version.to_owned(),
        arenas: pools.arenas(),
        used_bytes: used,
        free_bytes: pools.total_bytes().saturating_sub(used),
    }
}

fn heap_model(space: &Space, heap: Option<&Heap>, mapped: &Mapped) -> model::Heap {
    let Some(heap) = heap else {
        return model::Heap { allocator: allocator::name(space).to_owned(), ..model::Heap::default() };
    };
    let mut figures = model::HeapFigures {
        thread_cache_bytes: heap.cached_bytes,
        mapped_chunks: mapped.all().len() as u64,
        mapped_chunk_bytes: mapped.bytes(),
        ..model::HeapFigures::default()
    };
    for arena in &heap.arenas {
        figures.in_use_bytes += arena.in_use();
        figures.free_bytes += arena.free_bytes();
        figures.free_resident_bytes += arena.free.resident;
        figures.trimmable_bytes += arena.free.trimmable;
        figures.overhead_bytes += arena.heads + arena.walked.fenceposts;
        figures.foreign_bytes += arena.walked.foreign;
    }
    model::Heap {
        allocator: allocator::name_with_glibc(space).to_owned(),
        figures: heap.is_sound().then_some(figures),
        arenas: heap.arenas.iter().map(arena_model).collect(),
    }
}

fn arena_model(arena: &heap::Arena) -> model::Arena {
    let not_trimmable = arena.free.resident.saturating_sub(arena.free.trimmable);
    let because = if arena.free.in_top > not_trimmable / 2 {
        "it is the end of a thread's arena, which malloc_trim leaves alone"
    } else {
        "pieces smaller than a page, or on pages with blocks in use"
    };
    model::Arena {
        kind: if arena.main { "main" } else { "thread" }.to_owned(),
        in_use_bytes: arena.in_use(),
        free_bytes: arena.free_bytes(),
        free_resident_bytes: arena.free.resident,
        trimmable_bytes: arena.free.trimmable,
        not_trimmable_bytes: not_trimmable,
        not_trimmable_because: (not_trimmable > 0).then(|| because.to_owned()),
        system_bytes: arena.system,
        walked_bytes: arena.accounted() - arena.walked.lost,
        lost_bytes: arena.walked.lost,
    }
}

fn classes(classes: &Classes<'_, Remote>) -> Vec<model::Class> {
    let mut all: Vec<_> = classes.all().iter().filter(|class| class.count > 0).collect();
    all.sort_by_key(|class| (class.kind == Kind::Other, std::cmp::Reverse(class.bytes)));
    let ours = all.iter().filter(|class| class.kind != Kind::Other).count();
    let shown = all.into_iter().take(ours + OTHER_CLASSES);
    let model = |class: &super::objects::Class| model::Class {
        class: class.name.to_string(),
        kind: class.kind,
        count: class.count,
        bytes: class.bytes,
    };
    shown.map(model).collect()
}

fn swapped(pid: u32) -> u64 {
    let kib = info::status(pid, "VmSwap:").and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
