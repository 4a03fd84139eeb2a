//! Processes that outlive the one that was to be traced.

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tfmem::report::model::Cause;
use tfmem_tests::{
    fixtures::{self, Variant},
    look::{self, MIB},
    machine,
    trace::Trace,
};

#[test]
fn a_child_left_behind_is_named() -> Result<()> {
    if !machine::can_trace("a_child_left_behind_is_named") {
        return Ok(());
    }
    let command = fixtures::get()?.driver("leave-child", Variant::Plain);
    let traced = Trace::new()?.options(&["--grace", "500ms"]).run(command)?;
    let child = u32::try_from(fixtures::truth(&traced.output)?.get("child")?)?;
    // It sleeps for a minute; a report that came sooner did not wait for it.
    let alive = kill(Pid::from_raw(i32::try_from(child)?), Signal::SIGKILL).is_ok();
    ensure!(alive, "the child was gone before the report");

    let parent = traced.report.processes.iter().find(|process| process.pid != child).context("no parent")?;
    let exit = look::exit(parent)?;
    let verdict = look::verdict(&exit.verdicts, Cause::LeftoverProcess).context("no verdict leftover_process")?;
    ensure!(verdict.refs.pids == [child], "pids: {:?}", verdict.refs.pids);
    ensure!(verdict.bytes >= 16 * MIB, "{} bytes", verdict.bytes);
    ensure!(verdict.gives_back.contains(&child.to_string()), "advice: {}", verdict.gives_back);
    Ok(())
}
