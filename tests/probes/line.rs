//! What the probe suite says: one JSON object a line. Shared by path with xtask, which judges it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// First
    Kernel {
        release: String,
    },
    /// What `tfmem doctor` found: check, outcome
    Capabilities {
        outcomes: BTreeMap<String, String>,
    },
    Program(Program),
    /// What the report on a fixture says, without what differs from run to run
    Ledger {
        scenario: String,
        ledger: Value,
    },
    /// A part of the suite that could not be done, or that found something wrong
    Failed {
        part: String,
        why: String,
    },
    /// Last: nothing was cut off
    End,
}

/// One BPF program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub loaded: bool,
    /// Instructions that the verifier went through, where the kernel says it
    pub instructions: Option<u32>,
    pub attached: bool,
    /// How often it ran while the fixtures did
    pub fired: u64,
    /// Not every kernel has a place for it
    #[serde(default)]
    pub optional: bool,
    /// Why it was not loaded or attached: the verifier's last lines, too
    pub why: Option<String>,
}
