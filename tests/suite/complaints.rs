//! More public complaints made small (`tests/complaints`). Each script says itself what is held and why, from
//! TensorFlow's own sizes, `mallinfo2` or Python's collector; the report must say the same.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::Cause;
use tfmem_tests::{
    look::{self, MIB},
    machine,
    trace::{Trace, Traced},
};

/// Script, settings, the phase in which it ends.
type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const QUICK: &[Case] = &[
    ("functions_again", &[], "called"),
    ("tensor_keeps_graph", &[], "session_closed"),
    ("from_generator", &[], "stopped_early"),
];

/// With `--full`, on each TensorFlow.
const ALL: &[Case] = &[
    ("functions_again", &[], "called"),
    ("retraced", &[], "called"),
    ("tensor_keeps_graph", &[], "session_closed"),
    ("graph_grows", &[], "rounds_done"),
    ("from_generator", &[], "stopped_early"),
    ("shuffle_buffer", &[], "stopped_early"),
    ("slices", &[], "epochs_done"),
    ("keras_trials", &[], "trials_done"),
    ("load_loop", &[], "loaded"),
    ("load_loop", &[("DROP", "1")], "loaded"),
    ("variables_again", &[], "steps_done"),
    ("lib_sessions", &[], "evaluated"),
    ("queue_runners", &[], "trained"),
    ("py_closures", &[], "made"),
    ("tables", &[], "built"),
    ("named_variables", &[], "made"),
    ("server_state", &[], "jobs_done"),
    ("server_state", &[("PLACE", "models")], "jobs_done"),
    ("tensors_in_list", &[], "trained"),
    ("numpy_views", &[], "collected"),
    ("tape", &[], "forward"),
    ("variable_cycle", &[], "dropped"),
    ("predict_loop", &[], "predicted"),
];

fn traced(python: &Path, script: &str, settings: &[(&str, &str)], arguments: &[&str]) -> Result<Traced> {
    let trace = settings.iter().fold(Trace::new()?, |trace, (name, value)| trace.env(name, value));
    let script = machine::file(&format!("complaints/{script}.py"));
    let command = [python.as_os_str(), script.as_os_str()].into_iter().map(ToOwned::to_owned);
    trace.run(command.chain(arguments.iter().map(Into::into)))
}

/// What the script says of the phase: cause (`none`: nothing is to be blamed), bytes, a word of the place.
fn truth(said: &str, phase: &str) -> Result<(String, u64, String)> {
    let line = said.lines().rfind(|line| line.starts_with(&format!("TRUTH {phase} ")));
    let line = line.with_context(|| format!("no truth of {phase} in:\n{said}"))?;
    let mut words = line.split(' ').skip(2).map(str::to_owned);
    let cause = words.next().unwrap_or_default();
    let bytes = words.next().unwrap_or_default().parse().context("bytes")?;
    Ok((cause, bytes, words.next().unwrap_or_default()))
}

fn case(python: &Path, &(script, settings, phase): &Case) -> Result<()> {
    let settings: Vec<(&str, &str)> = settings.iter().copied().chain([("STOP_AT", phase)]).collect();
    let traced = traced(python, script, &settings, &[])?;
    let (cause, bytes, place) = truth(&traced.output.stdout, phase)?;
    let process = look::tensorflow_process(&traced.report)?;
    let blamed: Vec<_> = process.verdicts.iter().filter(|verdict| !verdict.cause.is_reserve()).collect();
    let Some(top) = blamed.iter().max_by_key(|verdict| verdict.bytes).filter(|top| top.bytes >= MIB) else {
        ensure!(cause == "none", "nothing is blamed for {bytes} bytes of {cause}");
        return Ok(());
    };
    let name = serde_json::to_value(top.cause)?;
    ensure!(name == cause.as_str(), "{cause} of {bytes} bytes, but {top:?}");
    // TensorFlow's registry of ops is taken for a part of a graph now and then, and the verdict says that it may be.
    let registry = if cause == "graph_retained" { 6 * MIB } else { 0 };
    ensure!(top.bytes.abs_diff(bytes) <= bytes * 3 / 100 + registry, "{bytes} bytes of {cause}, but {top:?}");
    let said = format!("{} {}", top.summary, top.evidence.join(" "));
    ensure!(said.contains(&place), "no {place:?} in {said}");
    // Nothing else of any size is to be blamed.
    let rest: u64 = blamed.iter().map(|verdict| verdict.bytes).sum::<u64>() - top.bytes;
    ensure!(rest <= bytes / 10 + 4 * MIB, "blamed beside it: {blamed:?}");
    Ok(())
}

fn all_of(cases: &[Case], environments: &[machine::Environment]) -> Result<()> {
    let mut failures = Vec::new();
    for environment in environments {
        let Some(python) = machine::python(environment) else { continue };
        for of in cases {
            if let Err(error) = case(&python, of) {
                failures.push(format!("{} {:?} on {}: {error:#}", of.0, of.1, environment.name));
            }
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn complaints_on_the_newest_tensorflow() -> Result<()> {
    if !machine::can_trace("complaints_on_the_newest_tensorflow") {
        return Ok(());
    }
    let newest = machine::ENVIRONMENTS.last().map(std::slice::from_ref).unwrap_or_default();
    all_of(QUICK, newest)
}

#[test]
fn all_complaints_on_each_tensorflow() -> Result<()> {
    const NAME: &str = "all_complaints_on_each_tensorflow";
    if !machine::long() {
        machine::skip_optional(NAME, "only with --full");
        return Ok(());
    }
    if machine::can_trace(NAME) { all_of(ALL, machine::ENVIRONMENTS) } else { Ok(()) }
}

/// A process that tidies up: no verdict but reserves, and nothing to speak of that is not explained.
fn ensure_nothing_blamed(python: &Path, programs: &[&str]) -> Result<()> {
    let traced = traced(python, "healthy", &[], programs)?;
    for process in &traced.report.processes {
        let blamed = process.verdicts.iter().filter(|v| !v.cause.is_reserve() && v.bytes >= MIB);
        let unexplained = |bytes, cause| cause == Cause::Unexplained && bytes < 4 * MIB;
        let blamed: Vec<_> = blamed.filter(|v| !unexplained(v.bytes, v.cause)).collect();
        ensure!(blamed.is_empty(), "{programs:?}: {blamed:?}");
    }
    Ok(())
}

#[test]
fn ten_healthy_programs_in_one_process() -> Result<()> {
    const NAME: &str = "ten_healthy_programs_in_one_process";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    for environment in machine::ENVIRONMENTS {
        if !machine::is_for_full(NAME, environment.name) {
            ensure_nothing_blamed(&machine::required_python(environment.name)?, &[])?;
        }
    }
    Ok(())
}

#[test]
fn healthy_programs_one_by_one() -> Result<()> {
    const NAME: &str = "healthy_programs_one_by_one";
    const PROGRAMS: &[&str] = &[
        "eager_fit",
        "pipeline",
        "cached",
        "generator",
        "saved_model",
        "shapes",
        "tape",
        "table",
        "session_with",
        "server_reset",
        "workers",
    ];
    if !machine::long() {
        machine::skip_optional(NAME, "only with --full");
        return Ok(());
    }
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    for environment in machine::ENVIRONMENTS {
        let python = machine::required_python(environment.name)?;
        for program in PROGRAMS {
            ensure_nothing_blamed(&python, &[program])?;
        }
    }
    Ok(())
}
