//! The published schema of the report.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Fails with every place where `report` is not as the schema says.
pub fn check(report: &Value) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tfmem/schema/report-1.schema.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let schema: Value = serde_json::from_str(&text).context("the schema is no JSON")?;
    let validator = jsonschema::validator_for(&schema).context("the schema is no JSON schema")?;
    let errors: Vec<String> =
        validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path)).collect();
    ensure!(errors.is_empty(), "the report is not as its schema says:\n{}", errors.join("\n"));
    Ok(())
}
