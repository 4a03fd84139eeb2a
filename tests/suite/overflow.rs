//! More events than fit: none are lost at the default buffer's size, and a report that lacks some says between what the
//! truth lies.

use std::ffi::OsString;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::report::model::{Bound, Layer, Process};
use tfmem_tests::{
    fixtures::{self, FRAMEWORK, Variant},
    look, machine,
    trace::{Trace, Traced},
};

/// All cores at once; as many calls in each as a large training makes in minutes.
#[test]
fn a_storm_on_all_cores_loses_nothing() -> Result<()> {
    const NAME: &str = "a_storm_on_all_cores_loses_nothing";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let calls = if machine::long() { 5_000_000 } else { 500_000 };
    let (traced, truth) = storm(&[], calls)?;
    let process = process(&traced)?;
    ensure!(traced.report.losses["events_dropped"] == 0, "lost: {:?}", traced.report.losses);
    ensure!(process.now.bounds.is_empty(), "{:?}", process.now.bounds);
    ensure!(process.now.layers.pool_chunk == Some(truth), "{truth}, the report {:?}", process.now.layers);
    Ok(())
}

#[test]
fn what_is_lost_makes_bounds_that_hold_the_truth() -> Result<()> {
    const NAME: &str = "what_is_lost_makes_bounds_that_hold_the_truth";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let (traced, truth) = storm(&["--buffer", "64KiB"], 500_000)?;
    let process = process(&traced)?;
    ensure!(traced.report.losses["events_dropped"] > 0, "nothing was lost: the test tests nothing");
    let bound = bound(process, Layer::PoolChunk)?;
    let (low, high) = (bound.at_least_bytes.context("no lower bound")?, bound.at_most_bytes.context("no upper bound")?);
    ensure!((low..=high).contains(&truth), "{truth} is not in {low}..={high}");
    ensure!(bound.lost_allocations > 0);
    let figure = process.now.layers.pool_chunk.context("no figure")?;
    ensure!((low..=high).contains(&figure), "{figure} is not in {low}..={high}");
    // The mappings were read again at the end: exact, and no drift.
    ensure!(process.now.bounds.iter().all(|b| b.layer != Layer::Mapping), "{:?}", process.now.bounds);
    ensure!(traced.report.losses.get("mapping_drift_bytes").is_none_or(|&n| n == 0), "{:?}", traced.report.losses);
    // What is rare has its part of the buffer: the process' end and its calls came through.
    for rare in ["dropped_calls", "dropped_returns", "dropped_forks", "dropped_execs", "dropped_exits"] {
        ensure!(traced.report.losses.get(rare).is_none_or(|&n| n == 0), "{rare}: {:?}", traced.report.losses);
    }
    Ok(())
}

fn storm(options: &[&str], calls: u64) -> Result<(Traced, u64)> {
    let fixtures = fixtures::get()?;
    let library = fixtures.library(Variant::Plain, FRAMEWORK);
    let folder = library.parent().context("no folder")?;
    let threads = std::thread::available_parallelism()?.get().min(64);
    let command: [OsString; 4] =
        [fixtures.overflow().into(), folder.into(), calls.to_string().into(), threads.to_string().into()];
    let traced = Trace::new()?.options(options).run(command)?;
    let truth: Value = serde_json::from_str(&traced.output.stdout)?;
    let truth = truth["chunk_bytes"].as_u64().context("the storm did not say what is alive")?;
    Ok((traced, truth))
}

fn process(traced: &Traced) -> Result<&Process> {
    look::tensorflow_process(&traced.report)
}

fn bound(process: &Process, layer: Layer) -> Result<&Bound> {
    process.now.bounds.iter().find(|b| b.layer == layer).context("the figure passes as exact")
}
