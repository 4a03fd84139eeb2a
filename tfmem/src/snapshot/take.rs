//! One process, stage by stage: mappings and resident pages, arenas, one pass, pools, holders, sums.

use std::io;

use super::{
    allocator, checks,
    contents::{Contents, Tried},
    ground::{Clock, Ground},
    heap::{self, Heap, Mapped},
    model,
    objects::{Class, Kind},
    parts::{self, Places},
    pymalloc::Pools,
    space::Space,
};
use crate::target::{info, memory::Remote};

/// So many classes that do not matter to TensorFlow are shown, and so many holders and files.
const OTHER_CLASSES: usize = 40;
pub const MOST_HOLDERS: usize = 500;
const MOST_FILES: usize = 60;

/// Looks at a process.
///
/// # Errors
/// When it is gone or may not be read.
pub fn take(pid: u32) -> io::Result<model::Process> {
    let mut clock = Clock::default();
    let info = info::read(pid, true)?;
    let memory = Remote::open(pid)?;
    let ground = Ground::read(pid, Some(&memory), &mut clock)?;
    let version = ground.python(&mut clock);
    let contents = Contents::read(&memory, &ground, version, &mut clock);
    let Ground { space, heap, totals, .. } = &ground;
    let Contents { mapped, python, named, held, .. } = &contents;
    let stacks = parts::stack_pointers(pid);
    let places = Places { space, heap: heap.as_ref(), mapped, python, pools: named, stacks: &stacks };
    let (resident, unexplained_bytes) = places.parts();
    let mut mappings = places.files();
    mappings.truncate(MOST_FILES);
    let lost_heap: u64 = heap.iter().flat_map(|heap| &heap.arenas).map(|arena| arena.walked.lost).sum();
    let mut process = model::Process {
        pid,
        comm: info.comm,
        exe: info.exe,
        rss_bytes: totals.rss(),
        swapped_bytes: swapped(pid),
        heap: heap_model(space, heap.as_ref(), mapped),
        python: contents.version.map(|version| python_model(&version.to_string(), python)),
        pools: contents.pools.iter().map(|pool| pool_model(space, pool)).collect(),
        resident,
        unexplained_bytes,
        classes: classes(&contents.classes),
        holders: held.holders.iter().take(MOST_HOLDERS).cloned().collect(),
        mappings,
        lost_bytes: contents.read.lost + held.read.lost + lost_heap,
        ..model::Process::default()
    };
    checks::fill(&mut process, heap.as_ref(), mapped, (held.buffers, held.complete), contents.refused);
    clock.stage("sums", 0);
    process.stages = clock.stages;
    Ok(process)
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

fn classes(classes: &[Class]) -> Vec<model::Class> {
    let mut all: Vec<_> = classes.iter().filter(|class| class.count > 0).collect();
    all.sort_by_key(|class| (class.kind == Kind::Other, std::cmp::Reverse(class.bytes)));
    let ours = all.iter().filter(|class| class.kind != Kind::Other).count();
    let shown = all.into_iter().take(ours + OTHER_CLASSES);
    let model = |class: &Class| model::Class {
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
