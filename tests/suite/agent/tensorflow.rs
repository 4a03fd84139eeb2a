//! Real TensorFlow under the agent.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tfmem::report::model::{Cause, Report};
use tfmem_tests::{agent::Agent, machine, running::Running};

/// A task of a distributed job by what its environment says; holds sessions that nobody closes.
const PROGRAM: &str = "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
kept = []
def job():
    graph = tf.Graph()
    with graph.as_default():
        weights = tf.compat.v1.get_variable('weights', [1 << 20], initializer=tf.compat.v1.random_uniform_initializer())
        session = tf.compat.v1.Session(graph=graph)
        session.run(weights.initializer)
    return session
job().close()
print('ready', flush=True)
signal.sigwait([signal.SIGUSR1])
kept += [job() for _ in range(3)]
job().close()
print('held', flush=True)
signal.sigwait([signal.SIGUSR1])
";

#[test]
fn real_tensorflow_is_found_named_and_judged() -> Result<()> {
    if !machine::can_trace("real_tensorflow_is_found_named_and_judged") {
        return Ok(());
    }
    let python = machine::required_python("tf-2.21.0")?;
    let folder = TempDir::new()?;
    let script = folder.path().join("train.py");
    fs::write(&script, PROGRAM)?;
    let mut agent = Agent::start("[trace]\ngrace = \"300ms\"\ntotals_every = \"500ms\"\n")?;
    // `env` sets what is read from outside: the environment that the program was started with.
    let config = r#"TF_CONFIG={"cluster": {}, "task": {"type": "worker", "index": 3}}"#;
    let secret = "--token=hunter2";
    let words = ["env", config, "CUDA_VISIBLE_DEVICES="].map(std::ffi::OsString::from);
    let command = words.into_iter().chain([python.into(), script.into(), secret.into()]);
    let mut program = Running::start(command)?;
    program.expect("ready")?;
    let pid = program.pid();
    let closed = |agent: &mut Agent| {
        Ok(agent.process(pid)?.filter(|process| process["boundaries"].as_u64().is_some_and(|n| n > 0)))
    };
    let (process, _) = agent.wait_for("its first close", closed)?;
    ensure!(process["who"]["job"] == "worker" && process["who"]["task"] == 3, "{process}");
    ensure!(process["version"] == "2.21.0", "{process}");
    agent.ask(&["escalate", &pid.to_string(), "--for", "4s"])?;
    std::thread::sleep(Duration::from_millis(1500));
    program.signal(Signal::SIGUSR1)?;
    program.expect("held")?;
    let over = |agent: &mut Agent| {
        Ok(agent.process(pid)?.filter(|process| process["retained"]["in_full"] == true && process["in_full"] == false))
    };
    let (process, _) = agent.wait_for("the end of full tracing", over)?;
    let held = process["retained"]["by_cause"]["session_open"].as_u64().context("no session is blamed")?;
    ensure!(held >= 3 * (4 << 20), "three sessions hold 4 MiB each, {held} bytes were seen");
    ensure!(process["sessions_open"] == 3, "{process}");
    let answer = agent.ask(&["report", &pid.to_string()])?;
    ensure!(!answer.to_string().contains("hunter2"), "a secret is shown");
    let report: Report = serde_json::from_value(answer)?;
    let traced = report.processes.iter().find(|traced| traced.pid == pid).context("not in it")?;
    let verdict = traced.verdicts.iter().find(|verdict| verdict.cause == Cause::SessionOpen).context("no verdict")?;
    let rows = verdict.refs.survivors.iter().filter_map(|&row| traced.boundaries.last()?.survivors.get(row));
    ensure!(rows.filter_map(|row| row.place.op.as_ref()).any(|op| op.contains("weights")), "no op is named");
    ensure!(!agent.metrics()?.contains("hunter2"), "a secret is shown");
    program.signal(Signal::SIGUSR1)?;
    program.wait()?;
    agent.end()?;
    Ok(())
}
