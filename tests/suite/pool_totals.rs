//! Totals are exact: what the report says is in use is what the program itself counts.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::Layer;
use tfmem_tests::{
    fixtures::{self, Variant},
    look, machine,
    trace::Trace,
};

#[test]
fn tensorflow_2_15_1_counts_the_same() -> Result<()> {
    tensorflow_counts_the_same("tensorflow_2_15_1_counts_the_same", "tf-2.15.1")
}

#[test]
fn tensorflow_2_21_0_counts_the_same() -> Result<()> {
    tensorflow_counts_the_same("tensorflow_2_21_0_counts_the_same", "tf-2.21.0")
}

/// Among them 2.18.1, where the function that reports chunks is inlined.
#[test]
fn other_tensorflows_count_the_same() -> Result<()> {
    const NAME: &str = "other_tensorflows_count_the_same";
    if !machine::long() {
        machine::skip_optional(NAME, "only with --full");
        return Ok(());
    }
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    for environment in machine::EXTRA_ENVIRONMENTS {
        match machine::python(environment) {
            Some(python) => counts_the_same(&python).with_context(|| environment.name)?,
            None => machine::skip_optional(NAME, &format!("{} is not installed", environment.name)),
        }
    }
    Ok(())
}

fn tensorflow_counts_the_same(test: &str, environment: &str) -> Result<()> {
    if !machine::can_trace(test) {
        return Ok(());
    }
    counts_the_same(&machine::required_python(environment)?)
}

fn counts_the_same(python: &Path) -> Result<()> {
    let trace = Trace::new()?.env("TF_CPP_MIN_LOG_LEVEL", "3");
    let traced = trace.run([python, &machine::file("programs/pool_in_use.py")])?;
    let said = traced.output.stdout.lines().find_map(|line| line.strip_prefix("IN_USE ")).context("no IN_USE line")?;
    let expected: u64 = said.parse()?;

    let process = look::tensorflow_process(&traced.report)?;
    let pools = &look::exit(process)?.pools;
    let found: u64 = pools.iter().map(|pool| pool.in_use_bytes).sum();
    ensure!(found == expected, "TensorFlow says {expected}, the report {found}: {pools:?}");
    ensure!(process.now.layers.pool_chunk == Some(expected), "layers: {:?}", process.now.layers);
    Ok(())
}

/// The same with a program whose every call is known: chunks, heap blocks, regions and sessions.
#[test]
fn the_fixture_counts_the_same() -> Result<()> {
    fixture_counts_the_same("the_fixture_counts_the_same", Variant::Plain)
}

/// The same where the function that reports chunks is inlined, as in TensorFlow 2.18.1.
#[test]
fn the_inlined_fixture_counts_the_same() -> Result<()> {
    fixture_counts_the_same("the_inlined_fixture_counts_the_same", Variant::Inlined)
}

fn fixture_counts_the_same(test: &str, variant: Variant) -> Result<()> {
    if !machine::can_trace(test) {
        return Ok(());
    }
    let command = fixtures::get()?.driver("sessions", variant);
    let traced = Trace::new()?.options(&["--min-bytes", "1", "--grace", "100ms"]).run(command)?;
    let truth = fixtures::truth(&traced.output)?;
    let process = look::tensorflow_process(&traced.report)?;
    let exit = look::exit(process)?;

    let chunks = truth.get("chunks_taken")? - truth.get("chunks_given_back")?;
    let found = look::survivors(exit, Layer::PoolChunk);
    ensure!(found == (truth.get("chunk_bytes_in_use")?, chunks), "chunks: {found:?}");
    let found = look::survivors(exit, Layer::Heap);
    ensure!(found == (truth.get("heap_bytes")?, truth.get("heap_blocks")?), "heap blocks: {found:?}");
    let pool = look::pool(exit, "fixture")?;
    ensure!(pool.in_use_bytes == truth.get("chunk_bytes_in_use")?, "pool: {pool:?}");
    ensure!(pool.regions_bytes == truth.get("regions_bytes")?, "pool: {pool:?}");
    let sessions = &process.handles.sessions;
    let expected = (truth.get("opened")?, truth.get("closed")?, truth.get("deleted")?);
    ensure!((sessions.opened, sessions.closed, sessions.deleted) == expected, "sessions: {sessions:?}");
    Ok(())
}
