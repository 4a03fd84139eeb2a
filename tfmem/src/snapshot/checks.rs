//! What the figures were checked against, and what is said where that failed.

use super::{
    heap::{Heap, Mapped},
    model::{Check, Process},
};

/// `buffers`: tensors' buffers, and those with all their references found. `refused`: objects that were too many.
pub fn fill(process: &mut Process, heap: Option<&Heap>, mapped: &Mapped, buffers: (u64, u64), refused: u64) {
    match heap {
        Some(heap) => of_heap(process, heap, mapped),
        None => {
            let allocator = &process.heap.allocator;
            process.notes.push(format!(
                "no heap of glibc's malloc was found (allocator: {allocator}): nothing is said of the heap, of objects, \
                 pools and holders"
            ));
        }
    }
    for pool in &process.pools {
        let name = pool.name.as_deref().unwrap_or("no name");
        let name = format!("pool \"{name}\": chunks in use against its own statistics");
        let bytes = pool.in_use_bytes;
        process.checks.push(Check { name, ok: pool.refused.is_none(), expected: bytes, found: bytes });
        if let Some(why) = &pool.refused {
            process.notes.push(format!("a pool of class {} is not shown: {why}", pool.class));
        }
    }
    if buffers.0 > 0 {
        process.checks.push(check("buffers with as many references as they count", buffers.0, buffers.1));
    }
    process.checks.push(check("bytes lost while reading", 0, process.lost_bytes));
    if refused > 0 {
        process.notes.push(format!("{refused} objects or classes were left out: there are too many"));
    }
    if process.swapped_bytes > 0 {
        process.notes.push(format!("{} bytes are swapped out and were not looked at", process.swapped_bytes));
    }
}

fn of_heap(process: &mut Process, heap: &Heap, mapped: &Mapped) {
    let system = heap.arenas.iter().map(|arena| arena.system).sum();
    let walked = heap.arenas.iter().map(|arena| arena.accounted() - arena.walked.lost).sum();
    process.checks.push(check("arenas: bytes walked against bytes from the system", system, walked));
    if let Some(parameters) = heap.parameters {
        let name = "large blocks: bytes found against malloc's own count";
        process.checks.push(check(name, parameters.mapped_bytes, mapped.bytes()));
    }
    let unsound = heap.arenas.iter().filter(|arena| !arena.is_sound()).count();
    if unsound > 0 {
        process.notes.push(format!(
            "{unsound} of {} arenas could not be walked (they changed meanwhile, or sbrk was blocked): no figures of \
             the heap",
            heap.arenas.len()
        ));
    }
    if heap.open_ring {
        process.notes.push("the list of arenas is broken: no figures of the heap".to_owned());
    }
    if heap.refused > 0 {
        process.notes.push(format!("{} arenas were left out: they are mostly not resident", heap.refused));
    }
}

fn check(name: &str, expected: u64, found: u64) -> Check {
    Check { name: name.to_owned(), ok: expected == found, expected, found }
}
