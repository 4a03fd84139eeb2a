//! glibc's heap, read from outside, against `mallinfo2` in the process at the same instant: not a byte off.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem_tests::{fixtures, machine, running::Running, snapshot};

#[test]
fn random_heaps_to_the_byte() -> Result<()> {
    if !machine::can_trace("random_heaps_to_the_byte") {
        return Ok(());
    }
    let rounds = if machine::long() { 20 } else { 4 };
    for seed in 1..=rounds {
        // With other callers of sbrk in every second one.
        compare(seed, &(seed % 5).to_string(), seed % 2 == 0).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

fn compare(seed: u64, threads: &str, foreign: bool) -> Result<()> {
    let program = fixtures::get()?.heap();
    let mut command = vec![program.display().to_string(), seed.to_string(), threads.to_owned()];
    command.extend(foreign.then(|| "foreign".to_owned()));
    let mut program = Running::start_ready(command)?;
    let said: Value = serde_json::from_str(&program.line()?)?;
    let process = snapshot::of(program.pid())?;
    ensure_same(&process.heap.figures.with_context(|| format!("no figures: {:?}", process.notes))?, &said)?;
    ensure!(process.lost_bytes == 0, "lost: {}", process.lost_bytes);
    let arenas = process.heap.arenas.len().to_string();
    ensure!(threads == "0" || arenas.parse::<u32>()? >= 2, "{arenas} arenas");
    let foreign_bytes = process.heap.figures.map_or(0, |figures| figures.foreign_bytes);
    ensure!((foreign_bytes >= 12_320) == foreign, "{foreign_bytes} bytes of another caller of sbrk");
    snapshot::ensure_checked(&process)
}

/// `mallinfo2` counts heads, fenceposts and what others took by `sbrk` as in use.
pub fn ensure_same(figures: &tfmem::snapshot::model::HeapFigures, said: &Value) -> Result<()> {
    let field = |name: &str| said[name].as_u64().with_context(|| format!("no {name} in {said}"));
    let found = [
        ("uordblks", figures.in_use_bytes + figures.overhead_bytes + figures.foreign_bytes),
        ("fordblks", figures.free_bytes),
        ("hblks", figures.mapped_chunks),
        ("hblkhd", figures.mapped_chunk_bytes),
    ];
    for (name, found) in found {
        ensure!(field(name)? == found, "{name}: said {}, found {found}: {figures:?}", field(name)?);
    }
    Ok(())
}
