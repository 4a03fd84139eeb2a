//! What cannot be looked at is said clearly, with the status of wrong usage.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Result, ensure};
use tfmem_tests::{machine, program::Program, running::Running, snapshot};

fn fails(options: &[&str], says: &str) -> Result<()> {
    let output = Program::new(machine::tfmem()?).arg("snapshot").args(options).run()?;
    ensure!(output.code == 2 && output.stdout.is_empty(), "status {}: {}", output.code, output.stdout);
    ensure!(output.stderr.contains(says), "{:?} does not say {says:?}", output.stderr);
    Ok(())
}

#[test]
fn what_is_no_process() -> Result<()> {
    fails(&["--pid", "4194305"], "no process has pid")?;
    fails(&["--pid", "2"], "kernel thread").or_else(|_| fails(&["--pid", "2"], "process"))?;
    fails(&[], "--pid")
}

#[test]
fn what_is_no_snapshot() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let file = folder.path().join("a.json");
    let path = file.display().to_string();
    fails(&["--diff", &path, &path], "cannot read")?;
    fs::write(&file, "{}")?;
    fails(&["--diff", &path, &path], "is no snapshot")
}

#[test]
fn another_user_may_not_look() -> Result<()> {
    if !machine::can_trace("another_user_may_not_look") {
        return Ok(());
    }
    let program = Running::start(["sleep", "60"])?;
    // Where it was built, another user may not come.
    let folder = tempfile::TempDir::new()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let tfmem = folder.path().join("tfmem");
    fs::copy(machine::tfmem()?, &tfmem)?;
    let output = Program::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&tfmem)
        .args(["snapshot", "--pid", &program.pid().to_string()])
        .run()?;
    ensure!(output.code == 2 && output.stderr.contains("may not be read"), "{}: {}", output.code, output.stderr);
    Ok(())
}

/// A program without Python and TensorFlow, its child, and two snapshots compared.
#[test]
fn any_program_and_its_children() -> Result<()> {
    if !machine::can_trace("any_program_and_its_children") {
        return Ok(());
    }
    let mut program = Running::start(["sh", "-c", "sleep 60 & echo ready; wait"])?;
    program.expect("ready")?;
    let pid = program.pid().to_string();
    let both = snapshot::with(&["--pid", &pid, "--children"])?;
    ensure!(both.processes.len() == 2, "{} processes", both.processes.len());
    for process in &both.processes {
        ensure!(process.heap.allocator == "glibc" && process.python.is_none(), "{process:?}");
        snapshot::ensure_checked(process)?;
    }
    let folder = tempfile::TempDir::new()?;
    let file = folder.path().join("a.json");
    fs::write(&file, serde_json::to_string(&both)?)?;
    let output = Program::new(machine::tfmem()?).args(["snapshot", "--diff"]).args([&file, &file]).run()?;
    ensure!(output.code == 0 && output.stdout.contains("before"), "{}: {}", output.code, output.stdout);
    Ok(())
}
