//! The report as JSON, `"schema": "tfmem.report/1"`.

use std::io::Write;

use super::model::Report;

/// The JSON Schema of what [`write()`] writes.
pub const SCHEMA: &str = include_str!("../../schema/report-1.schema.json");

/// Writes the report, indented, with a newline at the end.
///
/// # Errors
///
/// What the writer says: a full disk, a closed pipe.
pub fn write(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}
