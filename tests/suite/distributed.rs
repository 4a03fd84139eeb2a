//! A chief and two workers, each a process of its own: one session closed in the chief is a boundary on each.

use std::{net::TcpListener, path::Path};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tfmem::report::model::{Boundary, BoundaryKind, Cause, Job, Process};
use tfmem_tests::{
    look::{self, MIB},
    machine,
    trace::{Trace, Traced},
};

tfmem_tests::on_each_tensorflow!(
    one_close_is_a_boundary_in_each_process,
    isolated_sessions_take_their_state_with_them,
    reset_leaves_nothing_to_blame,
    a_server_in_the_same_process_keeps_variables,
);

/// Three processes of TensorFlow each: without `--full` all of them on the newest alone.
const ON_EACH: &str = "one_close_is_a_boundary_in_each_process";

fn required(test: &str, environment: &str, case: fn(&Path) -> Result<()>) -> Result<()> {
    if test != ON_EACH && machine::is_for_full(test, environment) {
        return Ok(());
    }
    if machine::can_trace(test) { case(&machine::required_python(environment)?) } else { Ok(()) }
}

/// Bytes of the variable that each worker holds.
const VARIABLE: u64 = 32 * MIB;

fn one_close_is_a_boundary_in_each_process(python: &Path) -> Result<()> {
    let traced = cluster(python, &[])?;
    let chief = task(&traced, "chief", 0)?;
    let closed = look::boundaries(chief, BoundaryKind::SessionClosed);
    ensure!(closed.len() == 2, "{} sessions closed in the chief", closed.len());
    let [first, second] = [handle(closed[0])?, handle(closed[1])?];
    ensure!(first != second, "both sessions have handle {first}");
    ensure!(chief.handles.master_sessions.opened == Some(2), "{:?}", chief.handles.master_sessions);
    for index in 0..2 {
        let worker = task(&traced, "worker", index)?;
        let ended = look::boundaries(worker, BoundaryKind::WorkerSessionDeleted);
        let handles: Vec<&str> = ended.iter().map(|b| handle(b)).collect::<Result<_>>()?;
        ensure!(handles == [first, second], "worker {index}: {handles:?}, in the chief {first} and {second}");
        let state = look::verdict(&ended[0].verdicts, Cause::WorkerState).context("no worker_state at the boundary")?;
        look::ensure_near("left by the first session", state.bytes, VARIABLE)?;
        ensure!(look::verdict(&ended[1].verdicts, Cause::WorkerState).is_none(), "the second session made nothing");

        let left = look::top(&worker.verdicts)?;
        ensure!(left.cause == Cause::WorkerState, "worker {index}: {:?}", left.cause);
        look::ensure_near("left in the end", left.bytes, VARIABLE)?;
        ensure!(left.gives_back.contains("Session.reset"), "{}", left.gives_back);
        ensure!(left.evidence.iter().any(|e| e.contains(first)), "{:?}", left.evidence);
        ensure!(left.evidence.iter().any(|e| e.contains(&format!("variable w{index} "))), "{:?}", left.evidence);
        ensure!(worker.handles.sessions.opened == 0, "a worker opens no session of its own");
        ensure!(worker.handles.worker_sessions.closed == Some(2), "{:?}", worker.handles.worker_sessions);
        ensure!(worker.handles.servers.opened == Some(1), "{:?}", worker.handles.servers);
    }
    Ok(())
}

fn isolated_sessions_take_their_state_with_them(python: &Path) -> Result<()> {
    let traced = cluster(python, &[("STATE", "isolated")])?;
    let chief = task(&traced, "chief", 0)?;
    let closed = look::boundaries(chief, BoundaryKind::SessionClosed);
    ensure!(closed.len() == 2, "{} sessions closed in the chief", closed.len());
    for index in 0..2 {
        let worker = task(&traced, "worker", index)?;
        let ended = look::boundaries(worker, BoundaryKind::WorkerSessionDeleted);
        ensure!(ended.len() == 2, "worker {index}: {} boundaries", ended.len());
        ensure!(handle(ended[0])? == handle(closed[0])?, "worker {index}: another handle");
        ensure!(look::blamed(&worker.verdicts) == 0, "worker {index}: {:?}", worker.verdicts);
        let released: u64 = worker.released.iter().map(|r| r.bytes).sum();
        look::ensure_near("given back", released, VARIABLE)?;
    }
    Ok(())
}

fn reset_leaves_nothing_to_blame(python: &Path) -> Result<()> {
    let traced = cluster(python, &[("RESET", "1")])?;
    for index in 0..2 {
        let worker = task(&traced, "worker", index)?;
        let ended = look::boundaries(worker, BoundaryKind::WorkerSessionDeleted);
        ensure!(ended.len() == 2, "worker {index}: {} boundaries", ended.len());
        // The control: it was there before.
        ensure!(look::verdict(&ended[0].verdicts, Cause::WorkerState).is_some(), "worker {index}: {:?}", ended[0]);
        ensure!(look::blamed(&worker.verdicts) == 0, "worker {index}: {:?}", worker.verdicts);
    }
    Ok(())
}

/// Case 11: chief, master and worker in one process.
fn a_server_in_the_same_process_keeps_variables(python: &Path) -> Result<()> {
    const CASE: &str = "cases/11_distribute_server_state.py";
    let run = |stop: &str| -> Result<Traced> {
        let trace = Trace::new()?.options(&["--grace", "500ms"]).env("STOP_AT", stop).env("HOLD", "1");
        trace.env("TF_CPP_MIN_LOG_LEVEL", "3").run([python, &machine::file(CASE)])
    };
    let traced = run("second_session_closed")?;
    let process = look::tensorflow_process(&traced.report)?;
    let left = look::top(&process.verdicts)?;
    ensure!(left.cause == Cause::WorkerState, "{left:?}");
    look::ensure_near("left", left.bytes, 64 * MIB)?;
    ensure!(left.evidence.iter().any(|e| e.contains("variable w ")), "{:?}", left.evidence);
    let closed = look::boundaries(process, BoundaryKind::SessionClosed);
    let ended = look::boundaries(process, BoundaryKind::WorkerSessionDeleted);
    ensure!((closed.len(), ended.len()) == (3, 3), "{} closed, {} ended", closed.len(), ended.len());
    for (closed, ended) in closed.iter().zip(&ended) {
        ensure!(handle(closed)? == handle(ended)?, "{} and {}", closed.label, ended.label);
    }

    let traced = run("after_reset")?;
    let process = look::tensorflow_process(&traced.report)?;
    ensure!(look::blamed(&process.verdicts) == 0, "{:?}", process.verdicts);
    Ok(())
}

fn cluster(python: &Path, env: &[(&str, &str)]) -> Result<Traced> {
    let folder = TempDir::new()?;
    let ports = free_ports()?;
    let trace = Trace::new()?.options(&["--grace", "1s"]).env("TF_CPP_MIN_LOG_LEVEL", "3");
    let trace = trace.env("TF_ENABLE_ONEDNN_OPTS", "0");
    let trace = env.iter().fold(trace, |trace, (name, value)| trace.env(name, value));
    let script = machine::file("programs/cluster.sh");
    let words = [Path::new("bash"), &script, python, folder.path()].map(Path::to_path_buf);
    trace.run(words.into_iter().chain(ports.into_iter().map(Into::into)))
}

/// Three ports that nobody uses. Held until all are known, so that none is given out twice.
fn free_ports() -> Result<Vec<String>> {
    let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|port| Ok(port.local_addr()?.port().to_string())).collect()
}

fn task<'a>(traced: &'a Traced, name: &str, task: u64) -> Result<&'a Process> {
    let job = Job { name: name.to_owned(), task };
    let with_tensorflow = || traced.report.processes.iter().filter(|p| !p.frameworks.is_empty());
    with_tensorflow().find(|p| p.job.as_ref() == Some(&job)).with_context(|| {
        format!("no {job:?}, but {:?}", with_tensorflow().map(|p| (p.pid, &p.job)).collect::<Vec<_>>())
    })
}

fn handle(boundary: &Boundary) -> Result<&str> {
    boundary.handle.as_deref().with_context(|| format!("{} has no handle", boundary.label))
}
