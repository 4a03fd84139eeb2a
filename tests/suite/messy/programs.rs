//! Programs that are not Python: C and C++ on TensorFlow's libraries, and executables with everything linked in.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::{BoundaryKind, Cause, Layer};
use tfmem_tests::{
    fixtures::{self},
    look::{self, MIB},
    machine, native,
    program::Program,
    trace::{Trace, Traced},
};

use super::no_losses;

const ENVIRONMENT: &str = "tf-2.15.1";

fn trace(program: &Path, arguments: &[&Path]) -> Result<Traced> {
    let trace = Trace::new()?.env("TF_CPP_MIN_LOG_LEVEL", "3").env("TF_ENABLE_ONEDNN_OPTS", "0");
    trace.options(&["--grace", "100ms"]).run([program].iter().chain(arguments))
}

/// In C, a closed session keeps its memory until it is deleted.
#[test]
fn c_closed_and_not_deleted() -> Result<()> {
    if !machine::can_trace("c_closed_and_not_deleted") {
        return Ok(());
    }
    let program = native::build("capi.c", &machine::required_python(ENVIRONMENT)?)?;
    let traced = trace(&program, &[Path::new("closed")])?;
    let process = look::tensorflow_process(&traced.report)?;
    ensure!(process.frameworks.iter().any(|f| f.version.as_deref() == Some("2.15.1")), "{:?}", process.frameworks);
    let closed = look::boundaries(process, BoundaryKind::SessionClosed);
    let closed = closed.first().context("no close")?;
    for verdicts in [&closed.verdicts, &look::exit(process)?.verdicts] {
        let verdict = look::verdict(verdicts, Cause::SessionNotDeleted).context("no verdict session_not_deleted")?;
        look::ensure_near("kept by the closed session", verdict.bytes, 64 * MIB)?;
        ensure!(verdict.gives_back.contains("TF_DeleteSession"), "advice: {}", verdict.gives_back);
    }
    Ok(())
}

#[test]
fn c_deleted() -> Result<()> {
    if !machine::can_trace("c_deleted") {
        return Ok(());
    }
    let program = native::build("capi.c", &machine::required_python(ENVIRONMENT)?)?;
    let traced = trace(&program, &[Path::new("deleted")])?;
    let process = look::tensorflow_process(&traced.report)?;
    let exit = look::exit(process)?;
    ensure!(look::blamed(&exit.verdicts) < MIB, "blamed: {:?}", exit.verdicts);
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.closed, sessions.deleted) == (1, 1, 1), "{sessions:?}");
    Ok(())
}

/// Each load and unload of a model is a boundary of its own.
#[test]
fn c_saved_models_in_a_loop() -> Result<()> {
    if !machine::can_trace("c_saved_models_in_a_loop") {
        return Ok(());
    }
    let python = machine::required_python(ENVIRONMENT)?;
    let (program, model) = (native::build("capi.c", &python)?, native::saved_model(&python)?);
    let traced = trace(&program, &[Path::new("models"), &model])?;
    let process = look::tensorflow_process(&traced.report)?;
    let deleted = look::boundaries(process, BoundaryKind::SessionDeleted);
    ensure!(deleted.len() == 3, "{} boundaries", deleted.len());
    let exit = look::exit(process)?;
    ensure!(look::blamed(&exit.verdicts) < MIB, "blamed: {:?}", exit.verdicts);
    Ok(())
}

/// `--full`: compiling against TensorFlow's C++ headers takes a while.
#[test]
fn cpp_without_the_c_api() -> Result<()> {
    const NAME: &str = "cpp_without_the_c_api";
    if !machine::long() {
        machine::skip_optional(NAME, "only with --full");
        return Ok(());
    }
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let program = native::build("session.cc", &machine::required_python(ENVIRONMENT)?)?;
    let traced = trace(&program, &[Path::new("destroyed")])?;
    let process = look::tensorflow_process(&traced.report)?;
    ensure!(look::blamed(&look::exit(process)?.verdicts) < MIB, "blamed: {:?}", look::exit(process)?.verdicts);
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.deleted) == (1, 1), "{sessions:?}");
    let traced = trace(&program, &[Path::new("left")])?;
    let process = look::tensorflow_process(&traced.report)?;
    let verdicts = &look::exit(process)?.verdicts;
    let open = look::verdict(verdicts, Cause::SessionOpen).context("no open session")?;
    look::ensure_near("held by the open session", open.bytes, 64 * MIB)
}

/// The symbols come from the executable's own table.
#[test]
fn a_static_executable() -> Result<()> {
    if !machine::can_trace("a_static_executable") {
        return Ok(());
    }
    let command = fixtures::get()?.static_messy("held-once", false);
    let traced = Trace::new()?.options(&["--grace", "100ms"]).run(command)?;
    no_losses(&traced.report)?;
    let process = look::tensorflow_process(&traced.report)?;
    ensure!(process.frameworks.len() == 1 && process.frameworks[0].blind.is_empty(), "{:?}", process.frameworks);
    let exit = look::exit(process)?;
    ensure!(look::survivors(exit, Layer::PoolChunk) == (4 * MIB, 4), "{:?}", exit.survivors);
    ensure!(look::verdict(&exit.verdicts, Cause::SessionOpen).is_some_and(|verdict| verdict.bytes == 4 * MIB));
    Ok(())
}

/// Without symbols no probe can be put in: doctor and the report say what is not seen, and what still is.
#[test]
fn a_stripped_static_executable() -> Result<()> {
    if !machine::can_trace("a_stripped_static_executable") {
        return Ok(());
    }
    let command = fixtures::get()?.static_messy("held-once", true);
    let traced = Trace::new()?.run(&command)?;
    let process = look::tensorflow_process(&traced.report)?;
    let blind: Vec<_> = process.frameworks.iter().flat_map(|framework| &framework.blind).collect();
    ensure!(blind.iter().any(|name| name.contains("AddTraceMe")), "blind to {blind:?}");
    ensure!(blind.iter().any(|name| name.contains("TF_NewSession")), "blind to {blind:?}");
    ensure!(process.now.rss_bytes.is_some_and(|bytes| bytes > 4 * MIB), "its resident bytes are seen all the same");
    ensure!(process.now.layers.mapping.is_some_and(|bytes| bytes > 64 * MIB), "its mappings are");

    let text = Program::new(machine::tfmem()?).args(["run", "--"]).args(&command).run()?;
    // The page wraps its sentences.
    let words = text.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(words.contains("BLIND") && words.contains("mappings and resident bytes are"), "{}", text.stdout);
    ensure!(!text.stdout.contains("nothing is held"), "{}", text.stdout);
    let doctor = Program::new(machine::tfmem()?).args(["doctor", "--library"]).arg(&command[0]).run()?;
    ensure!(doctor.stdout.contains("stripped of its names"), "{}", doctor.stdout);
    Ok(())
}
