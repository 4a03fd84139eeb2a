//! What `tfmem snapshot` says of a process.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::snapshot::model::{Holder, Part, Process, Snapshot};

use super::{machine, program::Program, schema};

/// A snapshot of one process, checked against its schema.
pub fn of(pid: u32) -> Result<Process> {
    let mut snapshot = with(&["--pid", &pid.to_string()])?;
    ensure!(snapshot.processes.len() == 1, "{} processes", snapshot.processes.len());
    snapshot.processes.pop().context("no process")
}

/// What `tfmem snapshot --format json` with these options says.
pub fn with(options: &[&str]) -> Result<Snapshot> {
    let output = Program::new(machine::tfmem()?).args(["snapshot", "--format", "json"]).args(options).run()?;
    ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
    let json: Value = serde_json::from_str(&output.stdout)?;
    schema::check_snapshot(&json)?;
    Ok(serde_json::from_value(json)?)
}

/// Fails with every check that failed.
pub fn ensure_checked(process: &Process) -> Result<()> {
    let failed: Vec<_> = process.checks.iter().filter(|check| !check.ok).collect();
    ensure!(failed.is_empty() && process.notes.is_empty(), "{failed:?} {:?}", process.notes);
    Ok(())
}

/// Bytes of a part of resident memory; 0: not there.
#[must_use]
pub fn part(process: &Process, what: &str) -> u64 {
    let parts = process.resident.iter().filter(|part| part.what == what);
    parts.map(|Part { bytes, .. }| bytes).sum()
}

/// The holder with most bytes.
pub fn largest(process: &Process) -> Result<&Holder> {
    process.holders.first().with_context(|| format!("no holders: {:?}", process.checks))
}

/// Objects of the classes whose names hold `part`.
#[must_use]
pub fn objects(process: &Process, part: &str) -> u64 {
    process.classes.iter().filter(|class| class.class.contains(part)).map(|class| class.count).sum()
}
