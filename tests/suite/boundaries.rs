//! Boundaries of the user's: marks and symbols; and those of the eager context and of servers.

use std::{ffi::OsStr, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::{BoundaryKind, Cause, Layer};
use tfmem_tests::{
    fixtures::{self, Variant},
    look::{self, MIB},
    machine,
    program::Program,
    trace::Trace,
};

#[test]
fn marks_end_spans() -> Result<()> {
    if !machine::can_trace("marks_end_spans") {
        return Ok(());
    }
    let tfmem = machine::tfmem()?;
    let traced = Trace::new()?
        .options(&["--grace", "300ms", "--min-bytes", "1"])
        .env("TFMEM", tfmem.to_str().context("not UTF-8")?)
        .run(fixtures::get()?.driver("marks", Variant::Plain))?;
    let process = traced.report.processes.iter().find(|p| !p.frameworks.is_empty()).context("no driver")?;
    let marks = look::boundaries(process, BoundaryKind::Mark);
    let labels: Vec<&str> = marks.iter().map(|b| b.label.as_str()).collect();
    ensure!(labels == ["first", "second one"], "{labels:?}");
    // Three chunks of a session that is open; then one of 4 MiB of another one, the first session's being older.
    ensure!(look::survivors(marks[0], Layer::PoolChunk) == (6 * MIB, 3), "{:?}", marks[0].survivors);
    ensure!(look::survivors(marks[1], Layer::PoolChunk) == (4 * MIB, 1), "{:?}", marks[1].survivors);
    for mark in marks {
        ensure!(look::verdict(&mark.verdicts, Cause::SessionOpen).is_some(), "{:?}", mark.verdicts);
    }
    Ok(())
}

#[test]
fn a_mark_for_nobody_is_refused() -> Result<()> {
    let mark = |arguments: &[&str]| Program::new(machine::tfmem()?).arg("mark").args(arguments).run();
    let output = mark(&["--pid", "1", "a label"])?;
    ensure!(output.code == 2, "status {}: {}", output.code, output.stderr);
    if nix::unistd::geteuid().is_root() {
        ensure!(output.stderr.contains("no running trace has process 1"), "{}", output.stderr);
    }
    let output = mark(&["--pid", "1", "two\nlines"])?;
    ensure!(output.code == 2 && output.stderr.contains("control characters"), "{}", output.stderr);
    Ok(())
}

#[test]
fn symbols_are_boundaries() -> Result<()> {
    if !machine::can_trace("symbols_are_boundaries") {
        return Ok(());
    }
    let boundaries = [
        "--boundary=libtensorflow_cc.so.2:TF_DeleteSession",
        "--boundary=libtensorflow_cc.so.2:no_such_function",
        "--boundary=libnowhere.so:f",
        // It never returns.
        "--boundary=libc.so.6:_exit",
        "--boundary=libc.so.6:TF_NewSession",
        "--boundary=libc.so.6:fork",
    ];
    let traced = Trace::new()?
        .options(&["--grace", "100ms", "--min-bytes", "1"])
        .options(&boundaries)
        .run(fixtures::get()?.driver("sessions", Variant::Plain))?;
    let process = look::tensorflow_process(&traced.report)?;
    let found = look::boundaries(process, BoundaryKind::Symbol);
    let labels: Vec<&str> = found.iter().map(|b| b.label.as_str()).collect();
    // `_exit` ends the process before the grace time is over: it is judged then.
    ensure!(labels == ["libtensorflow_cc.so.2:TF_DeleteSession", "libc.so.6:_exit"], "{labels:?}");
    let exit = look::exit(process)?;
    ensure!(
        look::survivors(found[1], Layer::PoolChunk) == look::survivors(exit, Layer::PoolChunk),
        "{:?}",
        found[1].survivors
    );
    let said = &traced.output.stderr;
    for expected in [
        "libtensorflow_cc.so.2:no_such_function: ",
        "libnowhere.so:f: never seen: no traced process mapped",
        "libc.so.6:TF_NewSession: ",
        "libc.so.6:fork: never seen: no traced process called",
    ] {
        ensure!(said.contains(expected), "not said: {expected}\n{said}");
    }
    ensure!(!said.contains("TF_DeleteSession"), "{said}");
    Ok(())
}

#[test]
fn a_boundary_needs_a_symbol() -> Result<()> {
    let output = Program::new(machine::tfmem()?).args(["run", "--boundary", "libc.so.6", "--", "true"]).run()?;
    ensure!(output.code == 2 && output.stderr.contains("LIB:SYMBOL"), "{}: {}", output.code, output.stderr);
    Ok(())
}

/// `clear_session`, the end of a context, and a server that is told to stop, through the C API where Python has no way.
#[test]
fn contexts_and_servers() -> Result<()> {
    if !machine::can_trace("contexts_and_servers") {
        return Ok(());
    }
    for name in ["tf-2.15.1", "tf-2.21.0"] {
        let python = machine::required_python(name)?;
        let command: [PathBuf; 2] = [python, machine::file("programs/handles.py")];
        let traced = Trace::new()?
            .options(&["--grace", "300ms"])
            .env("TF_CPP_MIN_LOG_LEVEL", "3")
            .run(command.iter().map(|word| -> &OsStr { word.as_ref() }))?;
        let process = look::tensorflow_process(&traced.report)?;
        let count = |kind| look::boundaries(process, kind).len();
        let found = (
            count(BoundaryKind::CachesCleared),
            count(BoundaryKind::ContextDeleted),
            count(BoundaryKind::ServerStopped),
        );
        ensure!(found.0 >= 1 && found.1 == 1 && found.2 == 2, "{name}: {found:?}");
        let servers = &process.handles.servers;
        ensure!((servers.opened, servers.closed) == (Some(2), Some(2)), "{name}: {servers:?}");
    }
    Ok(())
}
