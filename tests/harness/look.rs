//! Finds things in a report, with errors that show what is there instead.

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::{Boundary, BoundaryKind, Cause, Layer, Pool, Process, Report, Verdict};

pub const MIB: u64 = 1 << 20;

/// The one process that had TensorFlow loaded (or its stand-in).
pub fn tensorflow_process(report: &Report) -> Result<&Process> {
    let found: Vec<&Process> = report.processes.iter().filter(|process| !process.frameworks.is_empty()).collect();
    ensure!(
        found.len() == 1,
        "{} processes with TensorFlow, of {:?}",
        found.len(),
        report.processes.iter().map(|process| (process.pid, &process.cmdline)).collect::<Vec<_>>()
    );
    Ok(found[0])
}

pub fn boundaries(process: &Process, kind: BoundaryKind) -> Vec<&Boundary> {
    process.boundaries.iter().filter(|boundary| boundary.kind == kind).collect()
}

/// Every process ends once.
pub fn exit(process: &Process) -> Result<&Boundary> {
    let found = boundaries(process, BoundaryKind::ProcessExit);
    ensure!(found.len() == 1, "{} process_exit boundaries", found.len());
    Ok(found[0])
}

/// The verdict with most bytes.
pub fn top(verdicts: &[Verdict]) -> Result<&Verdict> {
    verdicts.iter().max_by_key(|verdict| verdict.bytes).context("no verdict at all")
}

pub fn verdict(verdicts: &[Verdict], cause: Cause) -> Option<&Verdict> {
    verdicts.iter().find(|verdict| verdict.cause == cause)
}

/// Bytes that the verdicts call a leak: neither kept by an allocator for its next user, nor unexplained.
pub fn blamed(verdicts: &[Verdict]) -> u64 {
    verdicts
        .iter()
        .filter(|verdict| !verdict.cause.is_reserve() && verdict.cause != Cause::Unexplained)
        .map(|verdict| verdict.bytes)
        .sum()
}

pub fn pool<'a>(boundary: &'a Boundary, name: &str) -> Result<&'a Pool> {
    boundary.pools.iter().find(|pool| pool.name == name).with_context(|| {
        format!("no pool {name}, but {:?}", boundary.pools.iter().map(|pool| &pool.name).collect::<Vec<_>>())
    })
}

/// Survivors of one layer: bytes and number.
pub fn survivors(boundary: &Boundary, layer: Layer) -> (u64, u64) {
    boundary
        .survivors
        .iter()
        .filter(|survivor| survivor.layer == layer)
        .fold((0, 0), |(bytes, count), survivor| (bytes + survivor.bytes, count + survivor.count))
}

/// Within two per cent: real programs allocate a little beside what they are about.
pub fn ensure_near(what: &str, found: u64, expected: u64) -> Result<()> {
    ensure!(found.abs_diff(expected) <= expected / 50, "{what}: {found} bytes, expected {expected} (2 %)");
    Ok(())
}
