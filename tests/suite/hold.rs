//! Nothing is missed while a library is being loaded: its constructors run before anyone could attach from outside.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use tfmem::report::model::Layer;
use tfmem_tests::{
    fixtures::{self, Variant},
    look, machine,
    trace::Trace,
};

#[test]
fn constructor_of_a_library_opened_later() -> Result<()> {
    if !machine::can_trace("constructor_of_a_library_opened_later") {
        return Ok(());
    }
    all_chunks_are_counted(fixtures::get()?.driver("load", Variant::Early))
}

#[test]
fn constructor_of_a_linked_library() -> Result<()> {
    if !machine::can_trace("constructor_of_a_linked_library") {
        return Ok(());
    }
    all_chunks_are_counted(fixtures::get()?.linked_driver("load"))
}

fn all_chunks_are_counted(command: Vec<PathBuf>) -> Result<()> {
    let traced = Trace::new()?.options(&["--min-bytes", "1"]).run(command)?;
    let truth = fixtures::truth(&traced.output)?;
    let process = look::tensorflow_process(&traced.report)?;
    let exit = look::exit(process)?;
    let found = look::survivors(exit, Layer::PoolChunk);
    let expected = (truth.get("chunk_bytes_in_use")?, truth.get("chunks_taken")?);
    ensure!(expected.1 == 1000, "the fixture took {} chunks", expected.1);
    ensure!(found == expected, "(bytes, chunks): {found:?}, really {expected:?}");
    ensure!(traced.report.losses.values().all(|&count| count == 0), "losses: {:?}", traced.report.losses);
    let pool = look::pool(exit, "early")?;
    ensure!(pool.in_use_bytes == expected.0 && pool.regions_bytes == truth.get("regions_bytes")?, "{pool:?}");
    Ok(())
}
