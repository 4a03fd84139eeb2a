//! Processes are found by what they map, followed while they live, and forgotten.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tfmem_tests::{
    agent::{Agent, get, probes_in},
    fixtures::{self, FRAMEWORK},
    machine,
    running::Running,
};

#[test]
fn a_library_that_is_loaded_later_is_found() -> Result<()> {
    for (name, how) in [("told by the kernel", "perf"), ("read from /proc", "poll")] {
        if !machine::can_trace("a_library_that_is_loaded_later_is_found") {
            return Ok(());
        }
        let trace = format!("[trace]\ngrace = \"100ms\"\ntotals_every = \"500ms\"\ndiscovery = \"{how}\"\n");
        let mut agent = Agent::start(&trace)?;
        let program = Running::start_ready(fixtures::get()?.messy("later"))?;
        ensure!(agent.process(program.pid())?.is_none(), "{name}: it has mapped nothing yet");
        program.signal(Signal::SIGUSR1)?;
        let pid = program.pid();
        let probed = |_: &mut Agent| Ok((probes_in(pid, FRAMEWORK).unwrap_or(0) > 0).then_some(()));
        let ((), took) = agent.wait_for("probes in its library", probed)?;
        // A second on a machine of its own; others work here, too.
        ensure!(took < Duration::from_secs(10), "{name}: {took:?}");
        println!("{name}: probes were in {took:?} after the library was asked for");
        agent.wait_for("the process", |agent| agent.process(pid))?;
        program.signal(Signal::SIGUSR1)?;
        program.wait()?;
        let gone = |agent: &mut Agent| Ok(agent.process(pid)?.is_none().then_some(()));
        agent.wait_for("that it is forgotten", gone)?;
        agent.end()?;
    }
    Ok(())
}

#[test]
fn many_processes_need_the_probes_of_one() -> Result<()> {
    if !machine::can_trace("many_processes_need_the_probes_of_one") {
        return Ok(());
    }
    let mut agent = Agent::start("")?;
    let mut programs = vec![Running::start_ready(fixtures::get()?.messy("held"))?];
    let first = programs.first().context("none")?.pid();
    agent.wait_for("one", |agent| agent.process(first))?;
    let files = agent.ask(&["status"])?["files"].as_u64().context("no count")?;
    let probes = probes_in(first, FRAMEWORK)?;
    for _ in 0..9 {
        programs.push(Running::start_ready(fixtures::get()?.messy("held"))?);
    }
    // Others' programs may run on this machine, too.
    let pids: Vec<u32> = programs.iter().map(Running::pid).collect();
    let rows = |agent: &mut Agent| -> Result<Vec<serde_json::Value>> {
        let all = agent.ask(&["processes"])?;
        let rows = all.as_array().context("no list")?.iter();
        Ok(rows.filter(|row| pids.iter().any(|&pid| row["pid"] == pid)).cloned().collect())
    };
    agent.wait_for("ten", |agent| Ok((rows(agent)?.len() == 10).then_some(())))?;
    let now = agent.ask(&["status"])?["files"].as_u64().context("no count")?;
    println!("{files} descriptors with one process, {now} with ten");
    for &pid in &pids {
        ensure!(probes > 0 && probes_in(pid, FRAMEWORK)? == probes, "the same probes in all");
    }
    let page = agent.metrics()?;
    ensure!(page.ends_with("# EOF\n") && page.contains("process_memory_usage_bytes{"), "{page}");
    ensure!(agent.metric("tfmem_processes", &[])?.is_some_and(|n| n >= 10.0), "{page}");
    ensure!(get(agent.address(), "/healthz")? == "ok\n");
    for program in &programs {
        // It closes what it had opened before the agent saw it, and opens another one.
        program.signal(Signal::SIGUSR1)?;
    }
    let open = |agent: &mut Agent| Ok(rows(agent)?.iter().all(|row| row["sessions_open"] == 1).then_some(()));
    agent.wait_for("an open session in each", open)?;
    drop(programs);
    agent.wait_for("none", |agent| Ok(rows(agent)?.is_empty().then_some(())))?;
    agent.end()?;
    Ok(())
}

#[test]
fn nothing_is_left_of_one_that_was_killed_and_another_goes_on() -> Result<()> {
    if !machine::can_trace("nothing_is_left_of_one_that_was_killed_and_another_goes_on") {
        return Ok(());
    }
    let mut agent = Agent::start("")?;
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let pid = program.pid();
    agent.wait_for("the process", |agent| agent.process(pid))?;
    ensure!(probes_in(pid, FRAMEWORK)? > 0);
    let folder = agent.kill()?;
    // The kernel takes them out while it closes what the agent had open.
    let start = std::time::Instant::now();
    while probes_in(pid, FRAMEWORK)? > 0 {
        ensure!(start.elapsed() < Duration::from_secs(30), "probes are left");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut agent = Agent::start_in(folder, "")?;
    let (process, _) = agent.wait_for("the process", |agent| agent.process(pid))?;
    ensure!(process["before_attach"] == true, "{process}");
    let seen = |agent: &mut Agent| {
        Ok(agent.process(pid)?.filter(|process| process["boundaries"].as_u64().is_some_and(|n| n > 0)))
    };
    agent.wait_for("boundaries", seen)?;
    agent.end()?;
    ensure!(probes_in(pid, FRAMEWORK)? == 0, "probes are left");
    let end = program.end()?;
    ensure!(end.code == 0, "the program was disturbed: {}", end.stdout);
    Ok(())
}

/// Those of the systemd unit and the DaemonSet, less `SYS_RESOURCE`, which not every machine gives away.
#[test]
fn few_capabilities_are_enough() -> Result<()> {
    if !machine::can_trace("few_capabilities_are_enough") {
        return Ok(());
    }
    // Without that the numbers of tracepoints cannot be read, and mounting it needs more.
    if !std::path::Path::new("/sys/kernel/tracing/events/sched").exists() {
        machine::skip_optional("few_capabilities_are_enough", "tracefs is not mounted");
        return Ok(());
    }
    let by = ["setpriv", "--bounding-set=-all,+bpf,+perfmon,+sys_ptrace", "--inh-caps=-all"];
    let mut agent = Agent::start_by(&by, TempDir::new()?, "")?;
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let pid = program.pid();
    let seen = |agent: &mut Agent| {
        Ok(agent.process(pid)?.filter(|process| process["boundaries"].as_u64().is_some_and(|n| n > 0)))
    };
    agent.wait_for("boundaries", seen)?;
    ensure!(agent.ask(&["status"])?["discovery"] == "perf");
    let word = pid.to_string();
    agent.ask(&["escalate", &word, "--for", "1s"])?;
    let full = |agent: &mut Agent| Ok(agent.process(pid)?.filter(|process| process["retained"]["in_full"] == true));
    agent.wait_for("full tracing", full)?;
    agent.end()?;
    Ok(())
}
