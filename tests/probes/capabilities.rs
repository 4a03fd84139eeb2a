//! What `tfmem doctor` finds here.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem_tests::{machine, program::Program};

use crate::line::Line;

/// Of the machine, not of the kernel.
const LEFT_OUT: &[&str] = &["GPU"];

pub fn ask() -> Result<Vec<Line>> {
    let output = Program::new(machine::tfmem()?).args(["doctor", "--format", "json"]).run()?;
    let found: Value = serde_json::from_str(&output.stdout)
        .with_context(|| format!("tfmem doctor, status {}: {}", output.code, output.stderr))?;
    let checks = found["checks"].as_array().context("no checks")?;
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let of_kernel = checks.iter().filter(|check| !LEFT_OUT.contains(&text(check, "group").as_str()));
    let mut lines = vec![Line::Capabilities {
        outcomes: of_kernel.map(|check| (text(check, "name"), text(check, "outcome"))).collect(),
    }];
    for check in checks.iter().filter(|check| check["required"] == true && check["outcome"] != "ok") {
        let part = format!("capabilities: {}", text(check, "name"));
        lines.push(Line::Failed { part, why: text(check, "found") });
    }
    ensure!(!checks.is_empty(), "doctor checked nothing");
    Ok(lines)
}
