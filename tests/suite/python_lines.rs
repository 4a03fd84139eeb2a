//! Whose line of Python a report names, in known complaints (`tests/cases`).

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::PythonOf;
use tfmem_tests::{
    look::{self, MIB},
    machine,
    trace::Trace,
};

/// A complaint: script, where it stops, the text of the line that is to blame, the function that it is in.
type Case = (&'static str, &'static str, &'static str, &'static str);

const SESSIONS: Case = ("01_unclosed_tf1_session", "training_end", "    sess.run(init)", "open_job");
const CIRCLE: Case =
    ("05_python_reference_cycle", "training_end", "self.last_batch = tf.ones([16 * MIB])", "Trainer.fit");
const TRACES: Case = ("06_tf_function_retracing", "python_arg", "    score(i) ", "<module>");

/// With oneDNN the variables are chunks of a pool, without blocks of the heap.
#[test]
fn sessions_line_on_2_15_1() -> Result<()> {
    on("sessions_line_on_2_15_1", "tf-2.15.1", |python| large(python, SESSIONS, "0"))
}

#[test]
fn sessions_line_on_2_21_0() -> Result<()> {
    on("sessions_line_on_2_21_0", "tf-2.21.0", |python| large(python, SESSIONS, "1"))
}

#[test]
fn circles_line_on_2_15_1() -> Result<()> {
    on("circles_line_on_2_15_1", "tf-2.15.1", |python| large(python, CIRCLE, "0"))
}

#[test]
fn circles_line_on_2_21_0() -> Result<()> {
    on("circles_line_on_2_21_0", "tf-2.21.0", |python| large(python, CIRCLE, "0"))
}

#[test]
fn traces_line_on_2_15_1() -> Result<()> {
    on("traces_line_on_2_15_1", "tf-2.15.1", traces)
}

#[test]
fn traces_line_on_2_21_0() -> Result<()> {
    on("traces_line_on_2_21_0", "tf-2.21.0", traces)
}

/// Those that are not on the newest TensorFlow, and the slowest, are for `--full`.
fn on(test: &str, environment: &str, case: fn(&Path) -> Result<()>) -> Result<()> {
    let slow = test.starts_with("traces") && !machine::long();
    if slow {
        machine::skip_optional(test, "only with --full");
    }
    if slow || machine::is_for_full(test, environment) || !machine::can_trace(test) {
        return Ok(());
    }
    case(&machine::required_python(environment)?)
}

/// Bytes of survivors by their line of Python.
fn lines(python: &Path, (script, stop, ..): Case, onednn: &str) -> Result<BTreeMap<String, u64>> {
    let traced = Trace::new()?
        .options(&["--stacks", "dwarf", "--min-bytes", "1KiB"])
        .env("TF_CPP_MIN_LOG_LEVEL", "3")
        .env("TF_ENABLE_ONEDNN_OPTS", onednn)
        .env("STOP_AT", stop)
        .run([python, &machine::file(&format!("cases/{script}.py"))])?;
    let exit = look::exit(look::tensorflow_process(&traced.report)?)?;
    let mut lines = BTreeMap::new();
    for survivor in &exit.survivors {
        let line = survivor.place.python.clone().unwrap_or_default();
        let of = survivor.place.python_of;
        ensure!(of.is_none() || (of == Some(PythonOf::Launch) && !line.is_empty()), "{survivor:?}");
        *lines.entry(line).or_default() += survivor.bytes;
    }
    Ok(lines)
}

/// `01_unclosed_tf1_session.py:38 open_job`, where the line has this text.
fn expected((script, _, text, function): Case) -> Result<String> {
    let source = fs::read_to_string(machine::file(&format!("cases/{script}.py")))?;
    let number = source.lines().position(|line| line.contains(text)).context("no such line")? + 1;
    Ok(format!("{script}.py:{number} {function}"))
}

/// Four times 64 MiB at one line.
fn large(python: &Path, case: Case, onednn: &str) -> Result<()> {
    let (lines, expected) = (lines(python, case, onednn)?, expected(case)?);
    let bytes = lines.get(&expected).copied().unwrap_or(0);
    look::ensure_near(&expected, bytes, 256 * MIB).with_context(|| format!("{lines:?}"))
}

/// What the traces hold is mostly in the C heap, which nobody sees; what is seen was made there.
fn traces(python: &Path) -> Result<()> {
    let (lines, expected) = (lines(python, TRACES, "0")?, expected(TRACES)?);
    ensure!(lines.get(&expected).is_some_and(|&bytes| bytes > 100 << 10), "{expected}: {lines:?}");
    Ok(())
}
