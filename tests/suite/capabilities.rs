//! What the machine allows is decided once, by trying; a trace goes by it and its report says so.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tfmem_tests::{
    machine,
    program::{Output, Program},
    trace::{Trace, Traced},
};

const TRIED: &str = "what this machine allows was tried in";
const KNOWN: &str = "what this machine allows is known since an earlier run";

/// A trace with a memory of its own.
fn trace(memory: &Path) -> Result<Traced> {
    let memory = memory.to_str().context("a name of ours")?;
    Trace::new()?.env("TFMEM_CACHE", memory).options(&["-vv"]).run(["/bin/true"])
}

fn entry(memory: &Path) -> PathBuf {
    memory.join("capabilities/decided.json")
}

fn ensure_says(output: &Output, said: &str) -> Result<()> {
    ensure!(output.stderr.contains(said), "nothing about {said:?}: {}", output.stderr);
    Ok(())
}

/// The outcome that is remembered of a trial.
fn change(file: &Path, edit: impl FnOnce(&mut Value)) -> Result<()> {
    let mut entry: Value = serde_json::from_slice(&fs::read(file)?)?;
    edit(&mut entry);
    Ok(fs::write(file, entry.to_string())?)
}

#[test]
fn they_are_decided_once_and_reported() -> Result<()> {
    if !machine::can_trace("they_are_decided_once_and_reported") {
        return Ok(());
    }
    let memory = TempDir::new()?;
    let (first, second) = (trace(memory.path())?, trace(memory.path())?);
    ensure_says(&first.output, TRIED)?;
    ensure_says(&second.output, KNOWN)?;
    ensure!(!second.output.stderr.contains(TRIED), "tried again: {}", second.output.stderr);
    // The recording of each was compared with its report on the way.
    let found = &first.report.capabilities;
    ensure!(*found == second.report.capabilities, "{found:?}, then {:?}", second.report.capabilities);
    for required in ["ring_buffer", "attach_cookie", "uprobe", "uretprobe", "bpf_programs", "processes"] {
        ensure!(found.get(required).is_some_and(|outcome| outcome == "ok"), "{required}: {found:?}");
    }
    for known in ["mappings_kprobe", "raw_tracepoints", "fentry", "uretprobe_seccomp", "memory_lock", "lockdown"] {
        ensure!(found.contains_key(known), "no {known}: {found:?}");
    }
    Ok(())
}

#[test]
fn doctor_tries_again_and_says_the_same() -> Result<()> {
    if !machine::can_trace("doctor_tries_again_and_says_the_same") {
        return Ok(());
    }
    let memory = TempDir::new()?;
    let of_trace = trace(memory.path())?.report.capabilities;
    let remembered = fs::read(entry(memory.path()))?;
    fs::write(entry(memory.path()), "damaged")?;
    let output =
        Program::new(machine::tfmem()?).env("TFMEM_CACHE", memory.path()).args(["doctor", "--format", "json"]).run()?;
    ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
    let again: Value = serde_json::from_slice(&fs::read(entry(memory.path()))?)?;
    ensure!(again == serde_json::from_slice::<Value>(&remembered)?, "{again}");
    let findings: Value = serde_json::from_str(&output.stdout)?;
    let checks = findings["checks"].as_array().context("no checks")?;
    let decided = again["decided"].as_object().context("nothing decided")?;
    ensure!(decided.len() == checks.iter().filter(|check| check["group"] != "GPU").count(), "two of one name: {again}");
    for check in checks {
        let name = check["name"].as_str().unwrap_or_default().replace(", ", "_").replace(' ', "_").to_lowercase();
        if check["outcome"] == "missing" && check["group"] != "GPU" {
            let outcome = format!("missing: {}", check["reason"].as_str().unwrap_or_default());
            ensure!(of_trace.get(&name) == Some(&outcome), "{name}: {of_trace:?}, {check}");
            ensure!(check["fix"].is_string(), "no fix: {check}");
        }
    }
    Ok(())
}

#[test]
fn a_damaged_or_foreign_memory_is_nothing() -> Result<()> {
    if !machine::can_trace("a_damaged_or_foreign_memory_is_nothing") {
        return Ok(());
    }
    let memory = TempDir::new()?;
    trace(memory.path())?;
    let file = entry(memory.path());
    fs::write(&file, "{\"circumstances\":{}")?;
    ensure_says(&trace(memory.path())?.output, TRIED)?;
    change(&file, |entry| entry["circumstances"]["boot"] = "another boot".into())?;
    ensure_says(&trace(memory.path())?.output, TRIED)?;
    change(&file, |entry| entry["circumstances"]["tfmem"] = "0.0.0".into())?;
    ensure_says(&trace(memory.path())?.output, TRIED)?;
    ensure_says(&trace(memory.path())?.output, KNOWN)
}

/// The way that is preferred is not even tried when it is known not to work.
#[test]
fn a_trace_goes_by_what_was_decided() -> Result<()> {
    if !machine::can_trace("a_trace_goes_by_what_was_decided") {
        return Ok(());
    }
    let memory = TempDir::new()?;
    trace(memory.path())?;
    change(&entry(memory.path()), |entry| {
        let decided = &mut entry["decided"]["mappings_tracepoint"];
        decided["outcome"] = "missing".into();
        decided["reason"] = "a wall".into();
    })?;
    let traced = trace(memory.path())?;
    let way = traced.report.capabilities.get("mm").context("no way")?;
    ensure!(!way.starts_with("tracepoint") && way.contains("tracepoint: a wall"), "{way}");
    let output = Program::new(machine::tfmem()?)
        .env("TFMEM_CACHE", memory.path())
        .args(["run", "--mm", "tracepoint", "--", "/bin/true"])
        .run()?;
    ensure!(output.code == 2, "status {}", output.code);
    ensure_says(&output, "--mm tracepoint does not work here: a wall")
}

/// The program that is started has the limits that it would have had without us.
#[test]
fn trying_changes_nothing_for_the_program() -> Result<()> {
    if !machine::can_trace("trying_changes_nothing_for_the_program") {
        return Ok(());
    }
    let limits = ["/bin/cat", "/proc/self/limits"];
    let memory = TempDir::new()?;
    let traced = Trace::new()?.env("TFMEM_CACHE", memory.path().to_str().context("a name of ours")?).run(limits)?;
    let plain = Program::new(limits[0]).arg(limits[1]).run()?;
    ensure!(traced.output.stdout == plain.stdout, "{}\nwithout: {}", traced.output.stdout, plain.stdout);
    Ok(())
}
