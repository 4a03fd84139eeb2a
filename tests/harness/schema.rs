//! The published schemas of the report and of the snapshot.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Fails with every place where `report` is not as the schema says.
pub fn check(report: &Value) -> Result<()> {
    check_by("report-1.schema.json", report)
}

/// The same for a snapshot.
pub fn check_snapshot(snapshot: &Value) -> Result<()> {
    check_by("snapshot-1.schema.json", snapshot)
}

fn check_by(schema: &str, report: &Value) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tfmem/schema").join(schema);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let parsed: Value = serde_json::from_str(&text).context("the schema is no JSON")?;
    let validator = jsonschema::validator_for(&parsed).context("the schema is no JSON schema")?;
    let errors: Vec<String> =
        validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path)).collect();
    ensure!(errors.is_empty(), "not as {schema} says:\n{}", errors.join("\n"));
    Ok(())
}
