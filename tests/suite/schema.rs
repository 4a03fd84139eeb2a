//! The report is what its published schema says. Each report that any test reads is checked on the way
//! (`Trace::run`); here are the two ends: a program without TensorFlow, and one with all there is to tell.

use anyhow::{Result, ensure};
use tfmem_tests::{
    fixtures::{self, Variant},
    machine, schema,
    trace::Trace,
};

#[test]
fn report_on_a_program_without_tensorflow() -> Result<()> {
    if !machine::can_trace("report_on_a_program_without_tensorflow") {
        return Ok(());
    }
    let traced = Trace::new()?.run(["/bin/true"])?;
    ensure!(traced.json["schema"] == "tfmem.report/1", "schema: {}", traced.json["schema"]);
    Ok(())
}

#[test]
fn report_with_sessions_pools_and_survivors() -> Result<()> {
    if !machine::can_trace("report_with_sessions_pools_and_survivors") {
        return Ok(());
    }
    let command = fixtures::get()?.driver("sessions", Variant::Plain);
    let traced = Trace::new()?.options(&["--grace", "100ms"]).run(command)?;
    let process = &traced.report.processes[0];
    ensure!(!process.boundaries.is_empty() && !process.verdicts.is_empty(), "nothing to check: {}", traced.json);
    Ok(())
}

/// The schema is strict enough to notice.
#[test]
fn a_wrong_report_is_refused() -> Result<()> {
    let wrong = serde_json::json!({ "schema": "tfmem.report/1", "processes": "none" });
    ensure!(schema::check(&wrong).is_err(), "accepted");
    Ok(())
}
