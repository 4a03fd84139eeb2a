//! What `run` must not change for the program: it follows every thread and child, and nobody but the stopped thread may
//! notice a stop.

use anyhow::{Result, ensure};
use tfmem_tests::{
    machine,
    program::{Output, Program},
};

fn run(command: &[&str]) -> Result<Output> {
    Program::new(machine::tfmem()?).args(["run", "--report-file", "/dev/null", "--"]).args(command).run()
}

/// The new program takes over the process's number from a thread that was not the main one.
#[test]
fn exec_from_another_thread() -> Result<()> {
    if !machine::can_trace("exec_from_another_thread") {
        return Ok(());
    }
    let script = "import os, threading, time\n\
                  threading.Thread(target=lambda: os.execv('/bin/echo', ['echo', 'taken', 'over'])).start()\n\
                  time.sleep(60)";
    let output = run(&["/usr/bin/python3", "-c", script])?;
    ensure!(output.code == 0 && output.stdout.contains("taken over"), "{}: {}", output.code, output.stderr);
    Ok(())
}

/// A shell with job control waits for stopped children too: it must see none.
#[test]
fn no_child_is_seen_to_stop() -> Result<()> {
    if !machine::can_trace("no_child_is_seen_to_stop") {
        return Ok(());
    }
    let output = run(&["/bin/bash", "-c", "set -m; for i in $(seq 20); do /bin/true || exit 9; done"])?;
    ensure!(output.code == 0, "{}: {}", output.code, output.stderr);
    Ok(())
}

/// Every signal arrives once, those without a name too.
#[test]
fn signals_arrive() -> Result<()> {
    if !machine::can_trace("signals_arrive") {
        return Ok(());
    }
    let script = "import os, signal\n\
                  seen = []\n\
                  for s in (signal.SIGUSR1, signal.SIGCONT, signal.SIGRTMIN + 3):\n\
                  \x20   signal.signal(s, lambda s, f: seen.append(s))\n\
                  for s in (signal.SIGUSR1, signal.SIGCONT, signal.SIGRTMIN + 3):\n\
                  \x20   os.kill(os.getpid(), s)\n\
                  print('seen', len(seen))";
    let output = run(&["/usr/bin/python3", "-c", script])?;
    ensure!(output.code == 0 && output.stdout.contains("seen 3"), "{}: {}", output.stdout, output.stderr);
    Ok(())
}

/// The main thread may end before the others: the process ends with its last one.
#[test]
fn the_main_thread_ends_first() -> Result<()> {
    if !machine::can_trace("the_main_thread_ends_first") {
        return Ok(());
    }
    let script = "import ctypes, os, threading, time\n\
                  def work():\n\
                  \x20   time.sleep(0.5)\n\
                  \x20   os._exit(7)\n\
                  threading.Thread(target=work).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    let output = run(&["/usr/bin/python3", "-c", script])?;
    ensure!(output.code == 7, "{}: {}", output.code, output.stderr);
    Ok(())
}
