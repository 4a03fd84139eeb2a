//! Several TensorFlow versions, each in a process of its own, in one trace.

use std::{thread::sleep, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tfmem::report::model::{BoundaryKind, Cause, Process};
use tfmem_tests::{
    attach::Attach,
    look::{self, MIB},
    machine,
    running::Running,
};

use super::process;

/// What one of the programs is told to do.
struct Job {
    environment: &'static str,
    version: &'static str,
    closed: u64,
    held_mib: u64,
}

const JOBS: [Job; 2] = [
    Job { environment: "tf-2.15.1", version: "2.15.1", closed: 3, held_mib: 5 },
    Job { environment: "tf-2.21.0", version: "2.21.0", closed: 2, held_mib: 9 },
];

/// Layouts, symbols and ways to report differ; each process is read by its own library's.
#[test]
fn two_tensorflow_versions_at_once() -> Result<()> {
    if !machine::can_trace("two_tensorflow_versions_at_once") {
        return Ok(());
    }
    let mut programs = Vec::new();
    for job in &JOBS {
        let python = machine::required_python(job.environment)?;
        let (script, closed) = (machine::file("programs/attached.py"), job.closed.to_string());
        let held = job.held_mib.to_string();
        programs.push(Running::start([python.as_os_str(), script.as_os_str(), closed.as_ref(), held.as_ref()])?);
    }
    for program in &mut programs {
        program.expect("ready")?;
    }
    let pids: Vec<u32> = programs.iter().map(Running::pid).collect();
    let attach = Attach::to(&pids, &["--grace", "200ms", "--min-bytes", "1"])?;
    // At the same time.
    for program in &programs {
        program.signal(Signal::SIGUSR1)?;
    }
    let grown = programs.iter_mut().map(|program| Ok(program.line()?.parse()?)).collect::<Result<Vec<u64>>>()?;
    sleep(Duration::from_millis(500));
    let traced = attach.interrupt()?;
    for ((job, pid), grown) in JOBS.iter().zip(&pids).zip(grown) {
        check(process(&traced.report, *pid)?, job, grown).with_context(|| job.version)?;
    }
    for program in programs {
        ensure!(program.end()?.code == 0, "a program failed");
    }
    Ok(())
}

/// `grown`: what the program itself says its pool's use grew by.
fn check(process: &Process, job: &Job, grown: u64) -> Result<()> {
    let versions: Vec<_> = process.frameworks.iter().map(|framework| framework.version.as_deref()).collect();
    ensure!(!versions.is_empty() && versions.iter().all(|version| *version == Some(job.version)), "{versions:?}");
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.closed) == (job.closed + 1, job.closed), "{sessions:?}");
    let closed = look::boundaries(process, BoundaryKind::SessionClosed).len() as u64;
    ensure!(closed == job.closed, "{closed} boundaries of closed sessions");
    let end = look::boundaries(process, BoundaryKind::TraceEnd);
    let end = end.first().context("no boundary for the end of the trace")?;
    // The pool's own counter: the open session's variable of 4 MiB and the tensor, whole chunks.
    ensure!(grown >= (job.held_mib + 4) * MIB, "the program's pool grew by {grown}");
    ensure!(process.now.layers.pool_chunk == Some(grown), "{grown} grown, {:?}", process.now.layers);
    let open = look::verdict(&end.verdicts, Cause::SessionOpen).context("no open session")?;
    ensure!(open.bytes >= 4 * MIB, "held by the open session: {}", open.bytes);
    Ok(())
}
