//! `tfmem trace` of programs that run already.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    machine,
    program::Output,
    schema,
    trace::{Traced, ensure_same_again},
};

const LIMIT: Duration = Duration::from_secs(120);

/// A trace under way.
pub struct Attach {
    child: Child,
    folder: TempDir,
}

impl Attach {
    /// Returns when the probes are in.
    pub fn to(pids: &[u32], options: &[&str]) -> Result<Self> {
        let mut attach = Self::begin(pids, options)?;
        let start = Instant::now();
        while !attach.stderr()?.contains("attached to") {
            if attach.child.try_wait()?.is_some() || start.elapsed() > LIMIT {
                bail!("not attached: {}", attach.stderr()?);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(attach)
    }

    /// Returns at once.
    pub fn begin(pids: &[u32], options: &[&str]) -> Result<Self> {
        let folder = TempDir::new()?;
        let stderr = fs::File::create(folder.path().join("stderr"))?;
        let child = Command::new(machine::tfmem()?)
            .args(["trace", "--format", "json", "--report-file"])
            .arg(folder.path().join("report.json"))
            .arg("--output")
            .arg(folder.path().join("recording"))
            .args(options)
            .arg("--pid")
            .args(pids.iter().map(u32::to_string))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()?;
        Ok(Self { child, folder })
    }

    pub fn stderr(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("stderr"))?)
    }

    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as Ctrl-C does.
    pub fn interrupt(self) -> Result<Traced> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?;
        self.wait()
    }

    /// Waits for its end, and reads its report.
    pub fn wait(mut self) -> Result<Traced> {
        let code = self.code()?;
        let stderr = self.stderr()?;
        ensure!(code == Some(0), "status {code:?}\n{stderr}");
        ensure!(!stderr.contains("panicked"), "{stderr}");
        let text = fs::read_to_string(self.folder.path().join("report.json")).with_context(|| stderr.clone())?;
        let json: Value = serde_json::from_str(&text).context("the report is no JSON")?;
        schema::check(&json)?;
        ensure_same_again(self.folder.path(), &text)?;
        let report = serde_json::from_value(json.clone()).context("the report does not read back")?;
        Ok(Traced { output: Output { code: 0, stdout: String::new(), stderr }, report, json })
    }

    /// Its status, once it ended.
    pub fn code(&mut self) -> Result<Option<i32>> {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("tfmem still runs: {}", self.stderr()?)
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
