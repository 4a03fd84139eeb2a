//! Python's multiprocessing: the child that used TensorFlow is the one that is told of, however it was started.

use std::ffi::OsStr;

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::Cause;
use tfmem_tests::{
    look::{self, MIB},
    machine,
    trace::Trace,
};

use super::process;

#[test]
fn fork() -> Result<()> {
    child("fork")
}

#[test]
fn spawn() -> Result<()> {
    child("spawn")
}

#[test]
fn forkserver() -> Result<()> {
    child("forkserver")
}

fn child(method: &str) -> Result<()> {
    if !machine::can_trace(&format!("multiprocessing::{method}")) {
        return Ok(());
    }
    let python = machine::required_python("tf-2.15.1")?;
    let script = machine::file("programs/children.py");
    let trace = Trace::new()?.env("TF_CPP_MIN_LOG_LEVEL", "3").env("TF_ENABLE_ONEDNN_OPTS", "0");
    let traced =
        trace.options(&["--grace", "200ms"]).run([python.as_os_str(), script.as_os_str(), OsStr::new(method)])?;
    let said = traced.output.stdout.lines().find_map(|line| line.strip_prefix("CHILD ")).context("no child")?;
    let child = process(&traced.report, said.trim().parse()?)?;
    ensure!(!child.frameworks.is_empty(), "nothing of TensorFlow in the child");
    ensure!(child.handles.sessions.opened == 1, "{:?}", child.handles.sessions);
    let exit = look::exit(child)?;
    let verdict = look::verdict(&exit.verdicts, Cause::SessionOpen).context("no verdict session_open")?;
    ensure!(verdict.bytes >= 8 * MIB, "{} bytes", verdict.bytes);
    for other in traced.report.processes.iter().filter(|process| process.pid != child.pid) {
        ensure!(other.handles.sessions.opened == 0, "process {} opened a session", other.pid);
    }
    Ok(())
}
