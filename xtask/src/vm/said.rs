//! What the probe suite said on one kernel.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::line::{Line, Program};

#[derive(Default)]
pub struct Said {
    pub release: String,
    pub capabilities: Option<BTreeMap<String, String>>,
    pub programs: Vec<Program>,
    pub ledgers: BTreeMap<String, Value>,
    /// Part, why
    pub failed: Vec<(String, String)>,
    /// It came to its end.
    pub ended: bool,
}

impl Said {
    /// A line that cannot be read is an error: the suite has its output for itself.
    pub fn read(text: &str) -> Result<Self> {
        let mut said = Self::default();
        for text in text.lines().map(str::trim).filter(|text| !text.is_empty()) {
            let line: Line = serde_json::from_str(text).with_context(|| format!("the suite said: {text}"))?;
            match line {
                Line::Kernel { release } => said.release = release,
                Line::Capabilities { outcomes } => said.capabilities = Some(outcomes),
                Line::Program(program) => said.programs.push(program),
                Line::Ledger { scenario, ledger } => {
                    said.ledgers.insert(scenario, ledger);
                }
                Line::Failed { part, why } => said.failed.push((part, why)),
                Line::End => said.ended = true,
            }
        }
        Ok(said)
    }

    /// It did something.
    pub fn is_something(&self) -> bool {
        self.capabilities.is_some() || !self.programs.is_empty() || !self.ledgers.is_empty() || !self.failed.is_empty()
    }
}
