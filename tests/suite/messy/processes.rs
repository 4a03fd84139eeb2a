//! Forks, execs, zombies, a pid that is used again.

use std::{thread::sleep, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tfmem::report::model::{Cause, Layer};
use tfmem_tests::{
    attach::Attach,
    fixtures,
    look::{self, MIB},
    machine,
    running::Running,
    trace::Trace,
};

use super::{by_argument, no_losses, process};

/// Each process has its own account: what was copied from the parent is not taken twice.
#[test]
fn a_fork_of_a_fork() -> Result<()> {
    if !machine::can_trace("a_fork_of_a_fork") {
        return Ok(());
    }
    let traced = Trace::new()?.options(&["--grace", "100ms"]).run(fixtures::get()?.messy("fork"))?;
    no_losses(&traced.report)?;
    let mut held = Vec::new();
    for process in &traced.report.processes {
        let exit = look::exit(process)?;
        held.push((process.handles.sessions.opened, look::survivors(exit, Layer::PoolChunk).0 / MIB));
        ensure!(process.frameworks.len() == 2, "process {}: {:?}", process.pid, process.frameworks);
    }
    held.sort_unstable();
    // Sessions opened in it, and the chunks it took itself.
    ensure!(held == [(1, 2), (1, 3), (1, 4)], "(sessions, MiB): {held:?}");
    Ok(())
}

#[test]
fn a_vfork_and_its_exec() -> Result<()> {
    if !machine::can_trace("a_vfork_and_its_exec") {
        return Ok(());
    }
    let traced = Trace::new()?.options(&["--grace", "100ms"]).run(fixtures::get()?.messy("vfork"))?;
    no_losses(&traced.report)?;
    ensure!(traced.report.processes.len() == 2, "{} processes", traced.report.processes.len());
    let [child] = by_argument(&traced.report, "held-once")[..] else { anyhow::bail!("no child") };
    let exit = look::exit(child)?;
    ensure!(look::survivors(exit, Layer::PoolChunk) == (4 * MIB, 4), "{:?}", exit.survivors);
    ensure!(look::verdict(&exit.verdicts, Cause::SessionOpen).is_some_and(|verdict| verdict.bytes == 4 * MIB));
    let [parent] = by_argument(&traced.report, "vfork")[..] else { anyhow::bail!("no parent") };
    ensure!(parent.frameworks.is_empty() && parent.handles.sessions.opened == 0, "the parent has nothing of it");
    Ok(())
}

#[test]
fn a_chain_of_execs() -> Result<()> {
    if !machine::can_trace("a_chain_of_execs") {
        return Ok(());
    }
    let words: Vec<String> =
        fixtures::get()?.messy("held-once").iter().map(|word| format!("'{}'", word.display())).collect();
    // The first shell becomes `env`, which becomes another shell, which becomes the program: one pid all along; the
    // child before it is another.
    let chain = format!("/bin/true; exec env A=1 sh -c \"exec {}\"", words.join(" "));
    let traced = Trace::new()?.options(&["--grace", "100ms"]).run(["/bin/sh", "-c", &chain])?;
    no_losses(&traced.report)?;
    let process = look::tensorflow_process(&traced.report)?;
    ensure!(look::survivors(look::exit(process)?, Layer::PoolChunk) == (4 * MIB, 4));
    ensure!(process.comm == "messy", "it is called {}", process.comm);
    Ok(())
}

/// A zombie holds no memory: only its parent, which lives, is left over.
#[test]
fn a_zombie_is_not_left_over() -> Result<()> {
    if !machine::can_trace("a_zombie_is_not_left_over") {
        return Ok(());
    }
    let traced = Trace::new()?.options(&["--grace", "300ms"]).run(fixtures::get()?.messy("orphan"))?;
    let child = u32::try_from(fixtures::truth(&traced.output)?.get("child")?)?;
    ensure!(
        kill(Pid::from_raw(i32::try_from(child)?), Signal::SIGKILL).is_ok(),
        "the child was gone before the report"
    );
    let zombie = traced.output.stdout.lines().find_map(|line| line.strip_prefix("zombie ")).context("no zombie")?;
    let zombie: u32 = zombie.parse()?;
    ensure!(process(&traced.report, zombie)?.exited_at.is_some(), "a zombie has ended");
    let parent = traced.report.processes.iter().find(|p| p.pid != child && p.pid != zombie).context("no parent")?;
    let verdict = look::verdict(&look::exit(parent)?.verdicts, Cause::LeftoverProcess).context("nothing left over")?;
    ensure!(verdict.refs.pids == [child], "left over: {:?}, the zombie is {zombie}", verdict.refs.pids);
    Ok(())
}

/// A zombie cannot be attached to, which is said.
#[test]
fn attaching_to_a_zombie() -> Result<()> {
    if !machine::can_trace("attaching_to_a_zombie") {
        return Ok(());
    }
    let mut program = Running::start(["/bin/true"])?;
    ensure!(program.line()?.is_empty());
    // Its output is closed a moment before it ends; nobody has waited for it.
    sleep(Duration::from_millis(100));
    let mut attach = Attach::begin(&[program.pid()], &[])?;
    ensure!(attach.code()? == Some(2) && attach.stderr()?.contains("zombie"), "{}", attach.stderr()?);
    Ok(())
}

/// The process ends and another one gets its pid at once: a stranger, which is not traced.
#[test]
fn a_pid_that_is_used_again() -> Result<()> {
    const NAME: &str = "a_pid_that_is_used_again";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let witness = Running::start_ready(fixtures::get()?.messy("idle"))?;
    let pid = program.pid();
    let attach = Attach::to(&[pid, witness.pid()], &["--grace", "100ms"])?;
    sleep(Duration::from_millis(200));
    program.signal(Signal::SIGKILL)?;
    program.wait()?;
    let stranger = match clone_with_pid(pid) {
        Ok(stranger) => stranger,
        Err(error) => {
            machine::skip_optional(NAME, &format!("no process with a chosen pid can be made: {error}"));
            return Ok(());
        }
    };
    // Long enough for the look-around that notices.
    sleep(Duration::from_millis(1500));
    let traced = attach.interrupt();
    let ended = kill(Pid::from_raw(stranger), Signal::SIGKILL)
        .and_then(|()| nix::sys::wait::waitpid(Pid::from_raw(stranger), None));
    let traced = traced?;
    ended?;
    let process = process(&traced.report, pid)?;
    ensure!(process.exited_at.is_some(), "the first one ended");
    let same = traced.report.processes.iter().filter(|process| process.pid == pid).count();
    ensure!(same == 1, "{same} processes with pid {pid}");
    Ok(())
}

/// A child that only waits, with this pid.
fn clone_with_pid(pid: u32) -> Result<i32> {
    let pids = [i32::try_from(pid)?];
    // SAFETY: all zero is a valid set of arguments: a plain fork.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.set_tid = pids.as_ptr() as u64;
    arguments.set_tid_size = 1;
    // SAFETY: the arguments are as clone3(2) wants them, and the child only calls `pause` and `_exit`.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of_val(&arguments)) };
    if child == 0 {
        // SAFETY: both are async-signal-safe.
        unsafe {
            libc::pause();
            libc::_exit(0);
        }
    }
    ensure!(child > 0, "{}", std::io::Error::last_os_error());
    Ok(i32::try_from(child)?)
}
