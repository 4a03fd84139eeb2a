//! Programs with another allocator than the C library's: it is named, nothing is claimed of its heap, and all else holds.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tfmem_tests::{machine, running::Running, snapshot};

#[test]
fn jemalloc() -> Result<()> {
    preloaded("jemalloc", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
}

#[test]
fn tcmalloc() -> Result<()> {
    preloaded("tcmalloc", "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")
}

fn preloaded(name: &str, library: &str) -> Result<()> {
    if !machine::can_trace(name) {
        return Ok(());
    }
    if !Path::new(library).exists() {
        // Where Debian has it, `cargo xtask setup` put it.
        machine::skip_optional(name, &format!("no {library}"));
        return Ok(());
    }
    let python = machine::required_python("tf-2.21.0")?;
    let script =
        "kept = [(n, str(n)) for n in range(100_000)]; print('ready', flush=True); import time; time.sleep(120)";
    let preload = format!("LD_PRELOAD={library}");
    let python = python.display().to_string();
    let program = Running::start_ready(["env", &preload, &python, "-c", script])?;
    let process = snapshot::of(program.pid())?;
    ensure!(process.heap.allocator == name && process.heap.figures.is_none(), "{:?}", process.heap);
    let note = process.notes.first().context("nothing is said of it")?;
    ensure!(note.contains(name) && note.contains("nothing is said of the heap"), "{note}");
    ensure!(process.holders.is_empty() && process.pools.is_empty(), "{:?} {:?}", process.holders, process.pools);
    // What does not lie in that heap is what it is.
    let python = process.python.as_ref().context("no Python")?;
    ensure!(python.used_bytes > 8_000_000, "{python:?}");
    let sum: u64 = process.resident.iter().map(|part| part.bytes).sum::<u64>() + process.unexplained_bytes;
    ensure!(sum.abs_diff(process.rss_bytes) < 4 << 20, "parts {sum}, resident {}", process.rss_bytes);
    Ok(())
}
