//! `tfmem run`, and the report that it leaves.

use std::{ffi::OsStr, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tfmem::report::model::Report;

use super::{
    machine,
    program::{Output, Program},
    schema,
};

/// A trace to be made: options, then the command.
pub struct Trace {
    program: Program,
    folder: TempDir,
}

/// A trace that was made.
pub struct Traced {
    pub output: Output,
    pub report: Report,
    pub json: Value,
}

impl Trace {
    pub fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        let program = Program::new(machine::tfmem()?)
            .args(["run", "--format", "json", "--report-file"])
            .arg(folder.path().join("report.json"))
            .arg("--output")
            .arg(folder.path().join("recording"));
        Ok(Self { program, folder })
    }

    #[must_use]
    pub fn options(mut self, options: &[&str]) -> Self {
        self.program = self.program.args(options);
        self
    }

    /// For the traced program, which inherits it.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.program = self.program.env(name, value);
        self
    }

    /// Runs the command under the tracer, which must succeed with status 0.
    pub fn run(self, command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Traced> {
        let traced = self.run_to_any_status(command)?;
        ensure!(traced.output.code == 0, "status {}\n{}", traced.output.code, traced.output.stderr);
        Ok(traced)
    }

    /// Every report a test reads is checked on the way: against the schema, and against that of its recording.
    pub fn run_to_any_status(self, command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Traced> {
        let output = self.program.arg("--").args(command).run()?;
        let path = self.folder.path().join("report.json");
        let text = fs::read_to_string(path).with_context(|| format!("no report; tfmem said:\n{}", output.stderr))?;
        let json: Value = serde_json::from_str(&text).context("the report is no JSON")?;
        schema::check(&json)?;
        ensure_same_again(self.folder.path(), &text)?;
        let report = serde_json::from_value(json.clone()).context("the report does not read back")?;
        Ok(Traced { output, report, json })
    }
}

/// The recording in this folder must give the same report as the trace did, letter by letter.
pub fn ensure_same_again(folder: &Path, live: &str) -> Result<()> {
    let recording = folder.join("recording");
    let replayed = Program::new(machine::tfmem()?).args(["report", "--format", "json"]).arg(recording).run()?;
    ensure!(replayed.code == 0, "`tfmem report`: status {}: {}", replayed.code, replayed.stderr);
    let mut lines = live.lines().zip(replayed.stdout.lines());
    let other = lines.find(|(live, replayed)| live != replayed);
    ensure!(live == replayed.stdout, "the recording gives another report; the first difference: {other:?}");
    Ok(())
}
