//! A training that goes on while snapshots are taken of it once a second.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::snapshot::model::Process;
use tfmem_tests::{machine, running::Running, snapshot};

/// What a step may be slower at its 99th percentile.
const MOST: f64 = 1.02;
/// Rounds with and without snapshots, in turns.
const ROUNDS: usize = 3;

#[test]
fn a_training_under_snapshots() -> Result<()> {
    let name = "a_training_under_snapshots";
    if !machine::can_trace(name) {
        return Ok(());
    }
    let python = machine::required_python("tf-2.21.0")?;
    let epochs = if machine::long() { "40" } else { "4" };
    let (plain, _) = fit(&python, epochs, false)?;
    let (watched, snapshots) = fit(&python, epochs, true)?;
    ensure!(plain["loss"] == watched["loss"], "without {}, with snapshots {}", plain["loss"], watched["loss"]);
    snapshots.iter().try_for_each(ensure_valid_or_refused)?;
    if !machine::long() {
        machine::skip_optional(name, "times of steps only with --full");
        return Ok(());
    }
    let mut ratios = vec![p99(&watched)? / p99(&plain)?];
    for _ in 1..ROUNDS {
        ratios.push(p99(&fit(&python, epochs, true)?.0)? / p99(&fit(&python, epochs, false)?.0)?);
    }
    ratios.sort_by(f64::total_cmp);
    ensure!(ratios[ROUNDS / 2] <= MOST, "99th percentile of the steps' times, with to without snapshots: {ratios:?}");
    Ok(())
}

/// What the program said, and the snapshots that were taken meanwhile.
fn fit(python: &Path, epochs: &str, watched: bool) -> Result<(Value, Vec<Process>)> {
    let script = machine::file("programs/watched_fit.py");
    let mut program = Running::start_ready([python.as_os_str(), script.as_os_str(), epochs.as_ref()])?;
    let pid = program.pid();
    let mut snapshots = Vec::new();
    if watched {
        let said = thread::spawn(move || program.line().map(|line| (line, program)));
        loop {
            let next = Instant::now() + Duration::from_secs(1);
            snapshots.push(snapshot::of(pid)?);
            while Instant::now() < next && !said.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
            if said.is_finished() {
                break;
            }
        }
        let (line, _) = said.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        return Ok((serde_json::from_str(&line)?, snapshots));
    }
    Ok((serde_json::from_str(&program.line()?)?, snapshots))
}

/// A check that failed has its note, or says how far it is off; what depends on it is not shown.
fn ensure_valid_or_refused(process: &Process) -> Result<()> {
    for arena in &process.heap.arenas {
        let off = arena.lost_bytes + arena.system_bytes.abs_diff(arena.walked_bytes + arena.lost_bytes);
        let sound = off <= arena.system_bytes / 100;
        ensure!(sound || (process.heap.figures.is_none() && !process.notes.is_empty()), "{arena:?}");
    }
    for pool in process.pools.iter().filter(|pool| pool.refused.is_some()) {
        ensure!(pool.in_use_bytes == 0 && !process.notes.is_empty(), "{pool:?}");
    }
    let variables: u64 = process.holders.iter().filter(|holder| holder.owner == "variable").map(|h| h.count).sum();
    ensure!(variables >= 10, "{variables} variables: {:?}", process.checks);
    let sum: u64 = process.resident.iter().map(|part| part.bytes).sum();
    ensure!(sum + process.unexplained_bytes >= process.rss_bytes / 2, "{:?}", process.resident);
    Ok(())
}

fn p99(said: &Value) -> Result<f64> {
    let steps = said["steps"].as_array().context("no steps")?;
    let mut steps: Vec<f64> = steps.iter().filter_map(Value::as_f64).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() * 99 / 100).copied().context("no step at all")
}
