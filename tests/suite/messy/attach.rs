//! `tfmem trace`: running programs, which never notice.

use std::{fs, thread::sleep, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tfmem::report::model::{BoundaryKind, Cause};
use tfmem_tests::{
    attach::Attach,
    fixtures::{self, Variant},
    look::{self, MIB},
    machine,
    running::Running,
    trace::Traced,
};

use super::{Places, process};

/// 20 times (100 with `--full`): the program goes on with the right result, and nothing stays behind in its code.
#[test]
fn attached_and_detached_again_and_again() -> Result<()> {
    if !machine::can_trace("attached_and_detached_again_and_again") {
        return Ok(());
    }
    // They must not mind each other.
    const AT_ONCE: usize = 4;
    let rounds = if machine::long() { 25 } else { 5 };
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let places = Places::of(program.pid())?;
    for round in 0..rounds {
        let attach = |_| Attach::to(&[program.pid()], &["--grace", "10ms", "--duration", "500ms"]);
        let attached = (0..AT_ONCE).map(attach).collect::<Result<Vec<_>>>()?;
        places.all_are_in()?;
        for attach in attached {
            let traced = attach.wait()?;
            let process = process(&traced.report, program.pid())?;
            ensure!(process.attached && process.exited_at.is_none(), "{process:?}");
            ensure!(process.handles.sessions.opened > 0, "nothing was seen in round {round}");
        }
        places.none_is_left().with_context(|| format!("after round {round}"))?;
    }
    let output = program.end()?;
    ensure!(output.code == 0, "the program failed with {}: {}", output.code, output.stdout);
    let truth = fixtures::truth(&output)?;
    ensure!(truth.get("opened")? == truth.get("deleted")? && truth.get("sum")? > 0);
    Ok(())
}

/// tfmem dies without a chance to clean up: the kernel does.
#[test]
fn tfmem_is_killed() -> Result<()> {
    if !machine::can_trace("tfmem_is_killed") {
        return Ok(());
    }
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let attach = Attach::to(&[program.pid()], &[])?;
    let places = Places::of(program.pid())?;
    places.all_are_in()?;
    drop(attach);
    places.none_is_left()?;
    let output = program.end()?;
    ensure!(output.code == 0, "the program failed with {}", output.code);
    Ok(())
}

#[test]
fn the_trace_ends_after_a_close() -> Result<()> {
    if !machine::can_trace("the_trace_ends_after_a_close") {
        return Ok(());
    }
    let program = Running::start_ready(fixtures::get()?.messy("held"))?;
    let mut attach = Attach::to(&[program.pid()], &["--until-close", "--grace", "300ms"])?;
    sleep(Duration::from_millis(500));
    ensure!(attach.is_alive()?, "nothing was closed yet: {}", attach.stderr()?);
    program.signal(Signal::SIGUSR1)?;
    let traced = attach.wait()?;
    held(&traced, program.pid())?;

    // More than one.
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let traced = Attach::to(&[program.pid()], &["--until-close=5", "--grace", "50ms"])?.wait()?;
    let sessions = &process(&traced.report, program.pid())?.handles.sessions;
    ensure!(sessions.deleted >= 4, "{sessions:?}");
    ensure!(program.end()?.code == 0, "the program failed");
    Ok(())
}

/// What was there before is said to be, and its sessions are no leaks.
#[test]
fn what_was_there_before() -> Result<()> {
    if !machine::can_trace("what_was_there_before") {
        return Ok(());
    }
    let mut program = Running::start_ready(fixtures::get()?.messy("held"))?;
    let attach = Attach::to(&[program.pid()], &["--grace", "100ms"])?;
    program.signal(Signal::SIGUSR1)?;
    program.expect("done")?;
    sleep(Duration::from_millis(400));
    let traced = attach.interrupt()?;
    held(&traced, program.pid())?;
    // The figures of a trace that is over are those of a program that runs on.
    ensure!(program.is_alive()?, "the program ended");
    Ok(())
}

/// The report on `messy held`, attached to while it waited.
fn held(traced: &Traced, pid: u32) -> Result<()> {
    no_losses_but_unknown_handles(traced)?;
    let process = process(&traced.report, pid)?;
    ensure!(process.attached);
    let sessions = &process.handles.sessions;
    ensure!(sessions.opened == 1 && sessions.open.len() == 1, "opened before is not counted: {sessions:?}");
    let ends = look::boundaries(process, BoundaryKind::TraceEnd);
    let end = ends.first().context("no boundary for the end of the trace")?;
    let before = look::verdict(&end.verdicts, Cause::BeforeAttach).context("nothing from before")?;
    // 8 MiB of chunks, 8 MiB of heap, 32 MiB mapped.
    ensure!(before.bytes >= 40 * MIB, "{} bytes from before: {}", before.bytes, before.summary);
    // Only the session opened under our eyes is open.
    let open = look::verdict(&end.verdicts, Cause::SessionOpen).context("no open session")?;
    look::ensure_near("held by the open session", open.bytes, 6 * MIB)
}

/// Handles from before are unknown, which is said and is no failure.
fn no_losses_but_unknown_handles(traced: &Traced) -> Result<()> {
    // A call may be under way when the trace begins.
    let expected = ["unknown_handles", "frees_from_before_attach", "calls_unpaired"];
    let lost = traced.report.losses.iter().filter(|(kind, count)| **count > 0 && !expected.contains(&kind.as_str()));
    let lost: Vec<_> = lost.collect();
    ensure!(lost.is_empty(), "losses: {lost:?}");
    Ok(())
}

#[test]
fn a_library_loaded_later() -> Result<()> {
    if !machine::can_trace("a_library_loaded_later") {
        return Ok(());
    }
    let mut program = Running::start_ready(fixtures::get()?.messy("later"))?;
    let attach = Attach::to(&[program.pid()], &["--grace", "100ms"])?;
    program.signal(Signal::SIGUSR1)?;
    program.expect("done")?;
    sleep(Duration::from_millis(300));
    let traced = attach.interrupt()?;
    let process = process(&traced.report, program.pid())?;
    // The first calls may be over before the probes are in: the program is not stopped for them.
    ensure!(process.frameworks.len() == 2, "frameworks: {:?}", process.frameworks);
    Ok(())
}

/// Its name is gone, or another file has it: the probes go into what is mapped.
#[test]
fn a_library_deleted_or_replaced_while_mapped() -> Result<()> {
    if !machine::can_trace("a_library_deleted_or_replaced_while_mapped") {
        return Ok(());
    }
    let folder = tempfile::TempDir::new()?;
    let fixtures = fixtures::get()?;
    for name in [fixtures::FRAMEWORK, fixtures::CC] {
        fs::copy(fixtures.library(Variant::Plain, name), folder.path().join(name))?;
    }
    let mut command = fixtures.messy("loop");
    command.truncate(2);
    command.push(folder.path().to_owned());
    let program = Running::start_ready(command)?;
    fs::remove_file(folder.path().join(fixtures::FRAMEWORK))?;
    fs::remove_file(folder.path().join(fixtures::CC))?;
    fs::write(folder.path().join(fixtures::CC), "another file")?;
    let traced = Attach::to(&[program.pid()], &["--duration", "300ms", "--grace", "50ms"])?.wait()?;
    no_losses_but_unknown_handles(&traced)?;
    let process = process(&traced.report, program.pid())?;
    ensure!(process.frameworks.len() == 2, "{:?}", process.frameworks);
    ensure!(process.handles.sessions.deleted > 0, "nothing was seen: {:?}", process.handles.sessions);
    ensure!(program.end()?.code == 0, "the program failed");
    Ok(())
}

/// Several at once, of different libraries, and a child that was there already.
#[test]
fn several_processes() -> Result<()> {
    if !machine::can_trace("several_processes") {
        return Ok(());
    }
    let fixtures = fixtures::get()?;
    let first = Running::start_ready(fixtures.messy("loop"))?;
    let second = Running::start_ready(fixtures.static_messy("loop", false))?;
    let idle = Running::start_ready(fixtures.messy("idle"))?;
    let pids = [first.pid(), second.pid(), idle.pid()];
    let traced = Attach::to(&pids, &["--duration", "300ms", "--grace", "50ms"])?.wait()?;
    for pid in &pids[..2] {
        let process = process(&traced.report, *pid)?;
        ensure!(process.handles.sessions.deleted > 0, "{pid}: {:?}", process.handles.sessions);
    }
    ensure!(process(&traced.report, idle.pid())?.frameworks.is_empty());
    no_losses_but_unknown_handles(&traced)?;
    ensure!(first.end()?.code == 0 && second.end()?.code == 0);
    Ok(())
}

/// The process ends while the probes go in, or just before.
#[test]
fn a_process_that_dies_during_the_attach() -> Result<()> {
    if !machine::can_trace("a_process_that_dies_during_the_attach") {
        return Ok(());
    }
    for delay in [0, 20, 60, 250] {
        let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
        let mut attach = Attach::begin(&[program.pid()], &["--grace", "10ms"])?;
        sleep(Duration::from_millis(delay));
        program.signal(Signal::SIGKILL)?;
        program.wait()?;
        let code = attach.code()?;
        let stderr = attach.stderr()?;
        let gone = code == Some(2) && (stderr.contains("no process") || stderr.contains("has ended"));
        ensure!(code == Some(0) || gone, "killed after {delay} ms: status {code:?}: {stderr}");
        ensure!(!stderr.contains("panicked"), "{stderr}");
    }
    Ok(())
}
