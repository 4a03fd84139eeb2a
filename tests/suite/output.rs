//! Where the words go: the program's own output untouched, the report behind it, the rest on standard error.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem_tests::{machine, program::Program};

#[test]
fn the_report_follows_the_programs_own_output() -> Result<()> {
    if !machine::can_trace("the_report_follows_the_programs_own_output") {
        return Ok(());
    }
    let output = Program::new(machine::tfmem()?).args(["run", "--format", "json", "--", "/bin/echo", "hello"]).run()?;
    ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
    let report = output.stdout.strip_prefix("hello\n").context("the program's output does not come first")?;
    let report: Value = serde_json::from_str(report).context("what follows is no JSON")?;
    ensure!(report["schema"] == "tfmem.report/1", "schema: {}", report["schema"]);
    Ok(())
}

#[test]
fn a_closed_pipe_is_no_error() -> Result<()> {
    if !machine::can_trace("a_closed_pipe_is_no_error") {
        return Ok(());
    }
    for format in ["text", "json"] {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let program = Program::new(machine::tfmem()?).args(["run", "--format", format, "--", "/bin/true"]);
        let code = program.run_with(Stdio::from(writer), Stdio::null())?;
        ensure!(code == 0, "--format {format}: status {code}");
    }
    Ok(())
}
