//! What goes wrong, and the exit status that says so.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tfmem_tests::{
    fixtures::{self, Variant},
    machine,
    program::{Output, Program},
    trace::Trace,
};

fn run(command: &[&str]) -> Result<Output> {
    Program::new(machine::tfmem()?).args(["run", "--"]).args(command).run()
}

fn ensure_ends(output: &Output, code: i32, said: &str) -> Result<()> {
    ensure!(output.code == code, "status {}, expected {code}: {}", output.code, output.stderr);
    ensure!(output.stderr.contains(said), "nothing about {said:?}: {}", output.stderr);
    ensure!(!output.stderr.contains("panicked"), "{}", output.stderr);
    Ok(())
}

#[test]
fn wrong_usage() -> Result<()> {
    for arguments in [&["run"][..], &["run", "--no-such-option", "--", "/bin/true"], &["no-such-verb"], &["trace"]] {
        let output = Program::new(machine::tfmem()?).args(arguments).run()?;
        ensure_ends(&output, 2, "Usage")?;
    }
    Ok(())
}

#[test]
fn without_privileges() -> Result<()> {
    if !machine::can_trace("without_privileges") {
        return Ok(());
    }
    // Where the tests' own binary lies, others may not even look.
    let folder = TempDir::new()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let binary = folder.path().join("tfmem");
    fs::copy(machine::tfmem()?, &binary)?;
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let output = Program::new("setpriv").args(nobody).arg(&binary).args(["run", "--", "/bin/true"]).run()?;
    ensure_ends(&output, 2, "root")
}

#[test]
fn no_such_process() -> Result<()> {
    if !machine::can_trace("no_such_process") {
        return Ok(());
    }
    // Above the kernel's greatest.
    let output = Program::new(machine::tfmem()?).args(["trace", "--pid", "4194305"]).run()?;
    ensure_ends(&output, 2, "4194305")
}

#[test]
fn no_such_command() -> Result<()> {
    if !machine::can_trace("no_such_command") {
        return Ok(());
    }
    ensure_ends(&run(&["/no/such/command"])?, 127, "/no/such/command")?;
    ensure_ends(&run(&["no-such-command-on-the-path"])?, 127, "no-such-command-on-the-path")
}

#[test]
fn command_that_cannot_be_run() -> Result<()> {
    if !machine::can_trace("command_that_cannot_be_run") {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let path = folder.path().join("data");
    fs::write(&path, "no program")?;
    let path = path.to_string_lossy();
    ensure_ends(&run(&[&path])?, 126, &path)
}

#[test]
fn the_commands_own_status_is_passed_on() -> Result<()> {
    if !machine::can_trace("the_commands_own_status_is_passed_on") {
        return Ok(());
    }
    ensure_ends(&run(&["/bin/sh", "-c", "exit 7"])?, 7, "")?;
    ensure_ends(&run(&["/bin/sh", "-c", "kill -KILL $$"])?, 128 + 9, "")?;
    ensure_ends(&run(&["/bin/sh", "-c", "kill -TERM $$"])?, 128 + 15, "")
}

#[test]
fn not_a_tensorflow_program() -> Result<()> {
    if !machine::can_trace("not_a_tensorflow_program") {
        return Ok(());
    }
    let output = run(&["/bin/true"])?;
    ensure_ends(&output, 0, "")?;
    ensure!(output.stdout.contains("no TensorFlow library was mapped"), "report: {}", output.stdout);
    Ok(())
}

/// Libraries without the names that the probes need: the report must not look like one of a program without leaks.
#[test]
fn stripped_libraries() -> Result<()> {
    if !machine::can_trace("stripped_libraries") {
        return Ok(());
    }
    let command = fixtures::get()?.driver("sessions", Variant::Stripped);
    let output = Program::new(machine::tfmem()?).args(["run", "--"]).args(&command).run()?;
    ensure_ends(&output, 0, "")?;
    for missing in ["AddTraceMe", "TF_NewSession"] {
        let said = format!("{}{}", output.stdout, output.stderr);
        ensure!(said.contains(missing), "nothing about the missing {missing}: {said}");
    }
    Ok(())
}

/// A gate for CI: status 3 when survivors other than reserves exceed the figure, the command's own status otherwise.
#[test]
fn fail_above() -> Result<()> {
    if !machine::can_trace("fail_above") {
        return Ok(());
    }
    let gate = |bytes: &str, command: Vec<PathBuf>| -> Result<i32> {
        let trace = Trace::new()?.options(&["--grace", "100ms", "--fail-above", bytes]);
        Ok(trace.run_to_any_status(command)?.output.code)
    };
    let fixtures = fixtures::get()?;
    ensure!(gate("1MiB", fixtures.driver("sessions", Variant::Plain))? == 3, "22 MiB are held");
    ensure!(gate("1GiB", fixtures.driver("sessions", Variant::Plain))? == 0, "less than 1 GiB is held");
    ensure!(gate("1MiB", fixtures.driver("tidy", Variant::Plain))? == 0, "only the pool's reserve is left");
    let failing = ["/bin/sh", "-c", "exit 7"].map(Path::new).map(Path::to_path_buf);
    ensure!(gate("1MiB", failing.to_vec())? == 7, "the command's own status");
    Ok(())
}
