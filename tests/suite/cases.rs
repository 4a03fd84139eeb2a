//! Public complaints, made small (`tests/cases`): what the report says about each, on each TensorFlow version.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::{Boundary, BoundaryKind, Cause, Layer, Process, Verdict};
use tfmem_tests::{
    look::{self, MIB},
    machine, on_each_tensorflow,
    trace::{Trace, Traced},
};

on_each_tensorflow!(
    ALL:
    unclosed_sessions_with_onednn,
    unclosed_sessions_without_onednn,
    sessions_closed_in_the_end_with_onednn,
    sessions_closed_in_the_end_without_onednn,
    closed_sessions,
    pool_kept_after_close,
    mkl_pool_kept_after_close,
    freed_and_kept_by_malloc,
    a_table_under_a_name,
    tensors_in_a_circle_of_references,
    the_cache_of_a_dataset,
    what_a_server_keeps,
    traces_of_a_function,
    traces_that_are_gone,
);

/// Slow ones: without `--full` on the newest TensorFlow alone.
const SLOW: &[&str] = &[
    "freed_and_kept_by_malloc",
    "a_table_under_a_name",
    "tensors_in_a_circle_of_references",
    "the_cache_of_a_dataset",
    "what_a_server_keeps",
    "traces_of_a_function",
    "traces_that_are_gone",
    "sessions_closed_in_the_end_with_onednn",
    "sessions_closed_in_the_end_without_onednn",
    "mkl_pool_kept_after_close",
];

fn required(test: &str, environment: &str, case: fn(&Path) -> Result<()>) -> Result<()> {
    if SLOW.contains(&test) && machine::is_for_full(test, environment) {
        return Ok(());
    }
    if machine::can_trace(test) { case(&machine::required_python(environment)?) } else { Ok(()) }
}

/// `--full`: the same on more versions of TensorFlow and Python.
#[test]
fn more_versions() -> Result<()> {
    const NAME: &str = "more_versions";
    if !machine::long() {
        machine::skip_optional(NAME, "only with --full");
        return Ok(());
    }
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let mut failures = Vec::new();
    for environment in machine::EXTRA_ENVIRONMENTS {
        let Some(python) = machine::python(environment) else {
            machine::skip_optional(NAME, &format!("{} is not installed", environment.name));
            continue;
        };
        for (name, case) in ALL {
            if let Err(error) = case(&python) {
                failures.push(format!("{name} on {}: {error:#}", environment.name));
            }
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn trace(python: &Path, script: &str, env: &[(&str, &str)]) -> Result<Traced> {
    let trace = env.iter().fold(Trace::new()?, |trace, (name, value)| trace.env(name, value));
    trace.env("TF_CPP_MIN_LOG_LEVEL", "3").run([python, &machine::file(script)])
}

const UNCLOSED: &str = "cases/01_unclosed_tf1_session.py";

fn unclosed_sessions_with_onednn(python: &Path) -> Result<()> {
    let traced = trace(python, UNCLOSED, &[("STOP_AT", "training_end"), ("TF_ENABLE_ONEDNN_OPTS", "1")])?;
    check_unclosed(&traced, Layer::PoolChunk)
}

fn unclosed_sessions_without_onednn(python: &Path) -> Result<()> {
    let traced = trace(python, UNCLOSED, &[("STOP_AT", "training_end"), ("TF_ENABLE_ONEDNN_OPTS", "0")])?;
    check_unclosed(&traced, Layer::Heap)
}

/// Four sessions of 64 MiB each, and the process ends without closing one.
fn check_unclosed(traced: &Traced, layer: Layer) -> Result<()> {
    let process = look::tensorflow_process(&traced.report)?;
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.closed, sessions.deleted) == (4, 0, 0), "sessions: {sessions:?}");
    ensure!(sessions.open.len() == 4, "open: {:?}", sessions.open);
    for session in &sessions.open {
        look::ensure_near("one session", session.bytes, 64 * MIB)?;
    }
    let kinds: Vec<_> = process.boundaries.iter().map(|boundary| boundary.kind).collect();
    ensure!(kinds == [BoundaryKind::ProcessExit], "boundaries: {kinds:?}");

    let exit = look::exit(process)?;
    for verdicts in [&exit.verdicts, &process.verdicts] {
        let top = look::top(verdicts)?;
        ensure!(top.cause == Cause::SessionOpen, "the verdict with most bytes: {top:?}");
        look::ensure_near("session_open", top.bytes, 256 * MIB)?;
        ensure!(top.summary.contains("4 sessions"), "summary: {}", top.summary);
        ensure!(!top.evidence.is_empty() && !top.gives_back.is_empty(), "no evidence or no advice: {top:?}");
    }
    check_survivors(traced, exit, layer)
}

/// The verdict's survivors are the variable `w`, in the layer where it lives, made in `open_job`.
fn check_survivors(traced: &Traced, exit: &Boundary, layer: Layer) -> Result<()> {
    let top = look::top(&exit.verdicts)?;
    let survivors = top.refs.survivors.iter().map(|&index| &exit.survivors[index]);
    let named: Vec<_> = survivors
        .filter(|survivor| survivor.cause == Cause::SessionOpen && survivor.layer == layer)
        .filter(|survivor| survivor.place.variable.as_deref() == Some("w"))
        .collect();
    look::ensure_near("variable w", named.iter().map(|survivor| survivor.bytes).sum(), 256 * MIB)?;
    // A trace without stacks (`--stacks off`, or none to be had) has no place in Python to name.
    if !traced.report.stacks.is_empty() {
        let place = named.iter().filter_map(|survivor| survivor.place.python.as_deref()).collect::<Vec<_>>();
        ensure!(place.iter().any(|place| place.contains("open_job")), "places in Python: {place:?}");
    }
    Ok(())
}

fn sessions_closed_in_the_end_with_onednn(python: &Path) -> Result<()> {
    check_closed_in_the_end(&trace(python, UNCLOSED, &[("TF_ENABLE_ONEDNN_OPTS", "1")])?)
}

fn sessions_closed_in_the_end_without_onednn(python: &Path) -> Result<()> {
    check_closed_in_the_end(&trace(python, UNCLOSED, &[("TF_ENABLE_ONEDNN_OPTS", "0")])?)
}

/// The same sessions, closed before the end: the report says what that freed and blames nothing that is gone.
fn check_closed_in_the_end(traced: &Traced) -> Result<()> {
    let process = look::tensorflow_process(&traced.report)?;
    check_all_closed(process)?;
    let released = process.released.iter().map(|released| released.bytes).sum();
    look::ensure_near("released by the closes", released, 256 * MIB)
}

/// The control: sessions in a `with`. Nothing at all to complain about.
fn closed_sessions(python: &Path) -> Result<()> {
    let traced = trace(python, "programs/closed_sessions.py", &[])?;
    check_all_closed(look::tensorflow_process(&traced.report)?)
}

fn check_all_closed(process: &Process) -> Result<()> {
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.closed) == (4, 4), "sessions: {sessions:?}");
    ensure!(sessions.open.is_empty(), "open: {:?}", sessions.open);
    let closed = look::boundaries(process, BoundaryKind::SessionClosed);
    ensure!(closed.len() == 4, "session_closed boundaries: {}", closed.len());
    ensure!(look::verdict(&process.verdicts, Cause::SessionOpen).is_none(), "verdicts: {:?}", process.verdicts);
    ensure!(look::blamed(&process.verdicts) < 16 * MIB, "verdicts: {:?}", process.verdicts);
    look::exit(process).map(drop)
}

const POOL: &str = "cases/03_allocator_pool_after_close.py";

fn pool_kept_after_close(python: &Path) -> Result<()> {
    check_pool_kept(&trace(python, POOL, &[])?, None)
}

fn mkl_pool_kept_after_close(python: &Path) -> Result<()> {
    check_pool_kept(&trace(python, POOL, &[("POOL", "mkl")])?, Some("mklcpu"))
}

/// Two runs, each closed: the pool keeps at least 256 MiB, none of it in use, and the second run did not grow it.
fn check_pool_kept(traced: &Traced, name: Option<&str>) -> Result<()> {
    let process = look::tensorflow_process(&traced.report)?;
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.closed) == (2, 2), "sessions: {sessions:?}");
    let closed = look::boundaries(process, BoundaryKind::SessionClosed);
    ensure!(closed.len() == 2, "session_closed boundaries: {}", closed.len());

    let exit = look::exit(process)?;
    let top = look::top(&process.verdicts)?;
    ensure!(top.cause == Cause::PoolReserve, "the verdict with most bytes: {top:?}");
    ensure!(top.bytes >= 256 * MIB, "{} bytes", top.bytes);
    ensure!(look::blamed(&process.verdicts) < 16 * MIB, "verdicts: {:?}", process.verdicts);
    let [pool] = top.refs.pools.as_slice() else { anyhow::bail!("pools of the verdict: {:?}", top.refs.pools) };
    ensure!(name.is_none_or(|name| name == pool) && top.summary.contains(pool), "{pool}: {}", top.summary);

    let pool = look::pool(exit, pool)?;
    ensure!(pool.in_use_bytes < MIB && pool.regions_bytes >= 256 * MIB, "pool: {pool:?}");
    ensure!(pool.grown_bytes == 0 && pool.reused_bytes >= 256 * MIB, "the second run: {pool:?}");
    Ok(())
}

/// Freed, and kept by the C allocator: no leak. The script says itself how much malloc has free.
fn freed_and_kept_by_malloc(python: &Path) -> Result<()> {
    let traced = trace(python, "cases/09_glibc_fragmentation.py", &[("STOP_AT", "after_free")])?;
    let process = look::tensorflow_process(&traced.report)?;
    let top = look::top(&process.verdicts)?;
    ensure!(top.cause == Cause::HeapReserve, "the verdict with most bytes: {top:?}");
    look::ensure_near("heap_reserve", top.bytes, 316 * MIB)?;
    ensure!(top.evidence.iter().any(|text| text.contains("malloc_trim")), "evidence: {:?}", top.evidence);
    let bands = &look::exit(process)?.after.bands;
    look::ensure_near("heap_free", bands.heap_free.unwrap_or(0), 316 * MIB)?;
    ensure!(look::blamed(&process.verdicts) < 16 * MIB, "verdicts: {:?}", process.verdicts);
    Ok(())
}

/// The verdict with most bytes at the end that is not about a reserve.
fn blamed(traced: &Traced) -> Result<Verdict> {
    let process = look::tensorflow_process(&traced.report)?;
    let blamed = process.verdicts.iter().filter(|verdict| !verdict.cause.is_reserve());
    blamed.max_by_key(|verdict| verdict.bytes).cloned().context("nothing is blamed")
}

fn a_table_under_a_name(python: &Path) -> Result<()> {
    let script = "cases/04_stateful_hash_table_persists.py";
    let top = blamed(&trace(python, script, &[("STOP_AT", "named_deleted")])?)?;
    ensure!(top.cause == Cause::StatefulResource && top.bytes >= 40 * MIB, "{top:?}");
    let evidence = top.evidence.join("; ");
    ensure!(evidence.contains("table \"") && evidence.contains("container \"localhost\""), "{evidence}");
    Ok(())
}

fn tensors_in_a_circle_of_references(python: &Path) -> Result<()> {
    let top = blamed(&trace(python, "cases/05_python_reference_cycle.py", &[("STOP_AT", "training_end")])?)?;
    ensure!(top.cause == Cause::PythonReference, "{top:?}");
    look::ensure_near("python_reference", top.bytes, 256 * MIB)
}

fn the_cache_of_a_dataset(python: &Path) -> Result<()> {
    let top = blamed(&trace(python, "cases/07_tfdata_cache.py", &[("STOP_AT", "epoch_done")])?)?;
    ensure!(top.cause == Cause::PipelineBuffers && top.evidence.join("; ").contains("cache"), "{top:?}");
    look::ensure_near("pipeline_buffers", top.bytes, 64 * MIB)
}

fn what_a_server_keeps(python: &Path) -> Result<()> {
    let script = "cases/11_distribute_server_state.py";
    let top = blamed(&trace(python, script, &[("STOP_AT", "second_session_closed")])?)?;
    ensure!(top.cause == Cause::WorkerState, "{top:?}");
    look::ensure_near("worker_state", top.bytes, 64 * MIB)
}

const RETRACED: &str = "cases/06_tf_function_retracing.py";

/// What `mallinfo2` said in a phase of a script.
fn live(said: &str, phase: &str) -> Result<u64> {
    let line = said.lines().find(|line| line.starts_with(&format!("PHASE {phase}"))).context("no such phase")?;
    let live = line.split("malloc_live=").nth(1).and_then(|rest| rest.split(' ').next()).context("no figure")?;
    Ok(live.parse::<u64>()? * MIB)
}

/// Each call with another Python number is another trace: 64 of them, none removed.
fn traces_of_a_function(python: &Path) -> Result<()> {
    let traced = trace(python, RETRACED, &[("STOP_AT", "python_arg")])?;
    let top = blamed(&traced)?;
    ensure!(top.cause == Cause::FunctionTraces && top.summary.contains("`body`"), "{top:?}");
    let before = live(&traced.output.stdout, "tensor_arg")?;
    let made = live(&traced.output.stdout, "python_arg")? - before;
    // With the one trace of the phase before.
    let expected = made + made / 64;
    ensure!(top.bytes.abs_diff(expected) <= expected * 3 / 100, "{expected} bytes, but {top:?}");
    ensure!(top.evidence.iter().any(|text| text.contains("added, 0 removed")), "{top:?}");
    Ok(())
}

/// The function is gone: what is left is the C allocator's.
fn traces_that_are_gone(python: &Path) -> Result<()> {
    let traced = trace(python, RETRACED, &[("STOP_AT", "after_del_function")])?;
    let process = look::tensorflow_process(&traced.report)?;
    let top = look::top(&process.verdicts)?;
    ensure!(top.cause == Cause::HeapReserve, "{top:?}");
    ensure!(look::blamed(&process.verdicts) < 16 * MIB, "verdicts: {:?}", process.verdicts);
    Ok(())
}
