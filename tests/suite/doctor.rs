//! `tfmem doctor`: says what is so, and says it in its exit status.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tfmem_tests::{
    fixtures::{self, CC, FRAMEWORK, Variant},
    machine,
    program::{Output, Program},
};

fn doctor() -> Result<Program> {
    Ok(Program::new(machine::tfmem()?).arg("doctor"))
}

fn ensure_status(output: &Output, status: i32) -> Result<()> {
    ensure!(output.code == status, "status {}, expected {status}\n{}\n{}", output.code, output.stdout, output.stderr);
    ensure!(!output.stderr.contains("panicked"), "{}", output.stderr);
    Ok(())
}

fn findings(output: &Output) -> Result<Value> {
    let findings: Value = serde_json::from_str(&output.stdout).context("no JSON")?;
    ensure!(findings["schema"] == "tfmem.doctor/1", "schema: {}", findings["schema"]);
    Ok(findings)
}

fn checks(findings: &Value) -> Result<&Vec<Value>> {
    findings["checks"].as_array().context("no checks")
}

#[test]
fn all_that_is_required_works_for_root() -> Result<()> {
    if !machine::can_trace("all_that_is_required_works_for_root") {
        return Ok(());
    }
    let output = doctor()?.args(["--format", "json"]).run()?;
    ensure_status(&output, 0)?;
    let findings = findings(&output)?;
    ensure!(findings["verdict"] == "ready", "{}", findings["verdict"]);
    let checks = checks(&findings)?;
    for check in checks.iter().filter(|check| check["required"] == true) {
        ensure!(check["outcome"] == "ok", "{check}");
    }
    for name in [
        "CAP_BPF",
        "pid namespace",
        "tracefs",
        "ring buffer",
        "BPF programs",
        "uprobe",
        "attach cookie",
        "uretprobe",
        "processes",
        "mapped files",
        "pagemap",
        "ptrace",
    ] {
        ensure!(checks.iter().any(|check| check["name"] == name && check["required"] == true), "no check {name}");
    }
    let way = checks.iter().find(|check| check["name"] == "mappings").context("no way to follow mappings")?;
    ensure!(way["outcome"] == "ok", "{way}");
    let programs = checks.iter().find(|check| check["name"] == "BPF programs").context("no programs")?;
    let found = programs["found"].as_str().unwrap_or_default();
    ensure!(found.contains("call_enter ") && found.contains("exit_mmap "), "instruction counts: {found}");
    Ok(())
}

#[test]
fn what_is_missing_comes_with_a_fix() -> Result<()> {
    if !machine::can_trace("what_is_missing_comes_with_a_fix") {
        return Ok(());
    }
    // Whoever lacks one capability of root's must hear which.
    let output = Program::new("setpriv")
        .args(["--bounding-set=-perfmon", "--inh-caps=-perfmon", "--"])
        .arg(machine::tfmem()?)
        .args(["doctor", "--format", "json"])
        .run()?;
    ensure_status(&output, 2)?;
    let findings = findings(&output)?;
    ensure!(findings["verdict"] == "needs_privilege", "{}", findings["verdict"]);
    for check in checks(&findings)? {
        let (name, outcome) = (&check["name"], &check["outcome"]);
        ensure!((name == "CAP_PERFMON") <= (outcome == "missing"), "{check}");
        ensure!(outcome != "not_tried" || check["fix"].is_string(), "{check}");
    }
    Ok(())
}

#[test]
fn without_privileges_it_says_what_was_not_tried() -> Result<()> {
    if !machine::can_trace("without_privileges_it_says_what_was_not_tried") {
        return Ok(());
    }
    // Where the tests' own binary lies, others may not even look.
    let folder = TempDir::new()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let binary = folder.path().join("tfmem");
    fs::copy(machine::tfmem()?, &binary)?;
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let output = Program::new("setpriv").args(nobody).arg(&binary).arg("doctor").run()?;
    ensure_status(&output, 2)?;
    for said in ["missing  CAP_BPF", "untried  uprobe", "sudo tfmem doctor", "Not allowed to trace"] {
        ensure!(output.stdout.contains(said), "nothing about {said:?}:\n{}", output.stdout);
    }
    ensure!(!output.stdout.contains('\x1b'), "colours in a file");
    Ok(())
}

#[test]
fn a_library_shows_its_probes() -> Result<()> {
    if !machine::can_trace("a_library_shows_its_probes") {
        return Ok(());
    }
    let fixtures = fixtures::get()?;
    let (framework, cc) = (fixtures.library(Variant::Plain, FRAMEWORK), fixtures.library(Variant::Plain, CC));
    let output = doctor()?.arg("--library").arg(&framework).arg("--library").arg(&cc).run()?;
    ensure_status(&output, 0)?;
    for said in ["BFCAllocator::AddTraceMe", "TF_NewSession", "call_enter, call_leave at 0x", "cheap", "push rbp"] {
        ensure!(output.stdout.contains(said), "nothing about {said:?}:\n{}", output.stdout);
    }
    let output = doctor()?.args(["--format", "json", "--library"]).arg(&framework).run()?;
    let findings = findings(&output)?;
    let points = findings["libraries"][0]["libraries"][0]["points"].as_array().context("no points")?;
    ensure!(points.iter().any(|point| point["program"] == "chunk" && point["cheap"] == true), "{points:?}");
    Ok(())
}

#[test]
fn a_stripped_library_is_said_to_be_useless() -> Result<()> {
    if !machine::can_trace("a_stripped_library_is_said_to_be_useless") {
        return Ok(());
    }
    let stripped = fixtures::get()?.library(Variant::Stripped, FRAMEWORK);
    let output = doctor()?.arg("--library").arg(stripped).run()?;
    ensure_status(&output, 1)?;
    ensure!(output.stdout.contains("stripped") && output.stdout.contains("No probe"), "{}", output.stdout);
    Ok(())
}

#[test]
fn what_is_no_library_is_wrong_usage() -> Result<()> {
    let folder = TempDir::new()?;
    let refused = |name: &str, bytes: &[u8], said: &str| -> Result<()> {
        let path = folder.path().join(name);
        fs::write(&path, bytes)?;
        refuses("--library", &path, said)
    };
    refused("text", "no library ".repeat(20).as_bytes(), "not an ELF file")?;
    refused("short", b"\x7fELF", "not an ELF file")?;
    refused("elf32", &header(1, 3), "32 bit")?;
    refused("arm64", &header(2, 183), "not x86-64")?;
    refuses("--library", Path::new("/no/such/file"), "/no/such/file")?;
    refuses("--library", folder.path(), "not a regular file")?;
    // Above the kernel's greatest.
    refuses("--pid", Path::new("4194305"), "4194305")
}

fn refuses(option: &str, argument: &Path, said: &str) -> Result<()> {
    let output = doctor()?.arg(option).arg(argument).run()?;
    ensure_status(&output, 2)?;
    ensure!(output.stderr.contains(said), "nothing about {said:?}: {}", output.stderr);
    Ok(())
}

/// The start of a shared library of that class (1: 32 bit, 2: 64 bit) for that machine.
fn header(class: u8, machine: u8) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    bytes[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1, 0]);
    bytes[16] = 3;
    bytes[18] = machine;
    bytes
}

/// The process goes on as if nobody had looked: it is neither stopped nor traced.
#[test]
fn a_process_without_tensorflow() -> Result<()> {
    if !machine::can_trace("a_process_without_tensorflow") {
        return Ok(());
    }
    let own = std::process::id().to_string();
    let output = doctor()?.args(["--pid", &own]).run()?;
    ensure_status(&output, 0)?;
    ensure!(output.stdout.contains("no file with TensorFlow's functions"), "{}", output.stdout);
    let status = fs::read_to_string("/proc/self/status")?;
    ensure!(status.contains("TracerPid:\t0"), "{status}");
    Ok(())
}
