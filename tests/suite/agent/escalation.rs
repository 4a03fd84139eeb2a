//! From rare events to everything, and back: by hand and by rule. And what else an agent is told.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::report::model::{Layer, Report};
use tfmem_tests::{
    agent::{Agent, probes_in},
    fixtures::{self, FRAMEWORK},
    machine,
    running::Running,
};

#[test]
fn a_process_is_traced_in_full_by_hand() -> Result<()> {
    if !machine::can_trace("a_process_is_traced_in_full_by_hand") {
        return Ok(());
    }
    let mut agent = Agent::start("[escalation]\nfor = \"3s\"\n")?;
    let program = Running::start_ready(fixtures::get()?.messy("grow"))?;
    let pid = program.pid();
    let word = pid.to_string();
    agent.wait_for("the process", |agent| agent.process(pid))?;
    let rare = probes_in(pid, FRAMEWORK)?;
    let outside = report(&agent, &word)?;
    let layers = outside.processes.iter().find(|process| process.pid == pid).context("not in it")?.now.layers;
    ensure!(layers.pool_chunk.is_none() && layers.heap.is_none(), "nobody looked at blocks: {layers:?}");
    let text = agent.ctl(&["report", &word])?;
    let honest = text.stdout.contains("were not followed") && !text.stdout.contains("BLIND");
    ensure!(text.code == 0 && honest, "{}", text.stdout);

    ensure!(agent.ask(&["escalate", &word, "--for", "3s"])?["pid"] == pid);
    let in_full = |agent: &mut Agent| Ok(agent.process(pid)?.filter(|process| process["in_full"] == true));
    agent.wait_for("full tracing", in_full)?;
    let all = |_: &mut Agent| Ok((probes_in(pid, FRAMEWORK)? > rare).then_some(()));
    agent.wait_for("more probes", all)?;
    let over = |agent: &mut Agent| Ok(agent.process(pid)?.filter(|process| process["in_full"] == false));
    let (process, _) = agent.wait_for("its end", over)?;
    let back = |_: &mut Agent| Ok((probes_in(pid, FRAMEWORK)? == rare).then_some(()));
    agent.wait_for("fewer probes", back)?;

    ensure!(process["retained"]["in_full"] == true, "{process}");
    let full = report(&agent, &word)?;
    let traced = full.processes.iter().find(|process| process.pid == pid).context("not in it")?;
    let last = traced.boundaries.last().context("no boundary")?;
    let kept: u64 = last.survivors.iter().filter(|row| row.layer == Layer::Heap).map(|row| row.bytes).sum();
    ensure!(kept >= 1 << 20, "it keeps 256 KiB ten times a second, and {kept} bytes were seen");
    ensure!(traced.cmdline.len() == 1, "command lines hold secrets: {:?}", traced.cmdline);
    let retained = agent.metric("tfmem_process_memory_retained_bytes", &["tfmem_view=\"full\""])?;
    ensure!(retained.is_some_and(|bytes| bytes >= f64::from(1 << 20)), "{retained:?}");

    let refused = agent.ctl(&["escalate", "1"])?;
    ensure!(refused.code == 1 && refused.stderr.contains("not followed"), "{}", refused.stderr);
    let snapshot = agent.ask(&["snapshot", &word])?;
    ensure!(snapshot["schema"] == "tfmem.snapshot/1", "{snapshot}");
    agent.end()?;
    ensure!(program.end()?.code == 0);
    Ok(())
}

fn report(agent: &Agent, pid: &str) -> Result<Report> {
    Ok(serde_json::from_value(agent.ask(&["report", pid])?)?)
}

#[test]
fn a_process_that_grows_is_traced_in_full_by_rule() -> Result<()> {
    if !machine::can_trace("a_process_that_grows_is_traced_in_full_by_rule") {
        return Ok(());
    }
    let rule = "[escalation]\nfor = \"2s\"\nat_once = 20\n[[escalation.rule]]\nboundaries = 2\ngrew_by = \"512kiB\"\n";
    let mut agent = Agent::start(rule)?;
    let healthy = Running::start_ready(fixtures::get()?.messy("held"))?;
    let program = Running::start_ready(fixtures::get()?.messy("grow"))?;
    let pid = program.pid();
    let retained = |agent: &mut Agent| {
        let process = agent.process(pid)?;
        Ok(process.filter(|process| process["retained"]["in_full"] == true && process["in_full"] == false))
    };
    let (process, _) = agent.wait_for("what it retains", retained)?;
    ensure!(process["growth"].as_i64().is_some_and(|growth| growth > 512 << 10), "{process}");
    ensure!(sum(&process["retained"]["by_cause"]) >= 256 << 10, "{process}");
    ensure!(agent.metric("tfmem_agent_escalations_total", &["\"by_rule\""])?.is_some_and(|n| n >= 1.0));
    let findings = agent.ask(&["status"])?["totals"]["findings"].clone();
    ensure!(sum(&findings) > 0, "{findings}");
    let other = agent.process(healthy.pid())?.context("the other one")?;
    ensure!(other["retained"]["in_full"] != true, "it did not grow: {other}");
    agent.end()?;
    ensure!(program.end()?.code == 0);
    Ok(())
}

fn sum(causes: &Value) -> u64 {
    causes.as_object().map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum())
}

#[test]
fn another_configuration_is_taken_and_the_ledgers_stay() -> Result<()> {
    if !machine::can_trace("another_configuration_is_taken_and_the_ledgers_stay") {
        return Ok(());
    }
    let mut agent = Agent::start("")?;
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let pid = program.pid();
    let boundaries = |least: u64| {
        move |agent: &mut Agent| {
            let process = agent.process(pid)?;
            Ok(process.and_then(|process| process["boundaries"].as_u64()).filter(|&n| n >= least))
        }
    };
    let (before, _) = agent.wait_for("boundaries", boundaries(10))?;
    agent.reload("[host]\nnonsense = 1\n")?;
    let refused = |agent: &mut Agent| Ok(agent.stderr()?.contains(": unknown field `nonsense`").then_some(()));
    agent.wait_for("that the mistake is named", refused)?;
    agent.reload("[host]\ncluster = \"blue\"\n")?;
    let taken = |agent: &mut Agent| Ok(agent.metrics()?.contains("tfmem_cluster=\"blue\"").then_some(()));
    agent.wait_for("the new label", taken)?;
    agent.wait_for("the same ledger", boundaries(before + 1))?;
    agent.end()?;
    ensure!(program.end()?.code == 0);
    Ok(())
}
