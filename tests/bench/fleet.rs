//! What the agent costs on a host with many processes, each of which closes a session every second: `--fleet`.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use tfmem_tests::{agent::Agent, fixtures::Fixtures, running::Running};

use crate::figure::{Figure, Goal};

const COUNTS: [usize; 4] = [25, 50, 100, 200];
/// The agent may use so much with its default limits: share of a core in percent, MiB with 100 processes.
const CPU: f64 = 1.0;
const MEMORY: f64 = 64.0;

/// The defaults, but for addresses.
const CONFIGURATION: &str = "[trace]\n[limits]\n";

struct Cost {
    processes: f64,
    cpu: f64,
    memory: f64,
    files: f64,
    probes: f64,
    /// How much rarer looks had become, as the agent keeps its limit by that.
    stretched: f64,
    found: Duration,
}

pub fn measure(fixtures: &Fixtures, settle: Duration, phase: Duration) -> Result<Vec<Figure>> {
    let mut agent = Agent::start(CONFIGURATION)?;
    let mut programs = Vec::new();
    let mut costs = Vec::new();
    for count in COUNTS {
        while programs.len() < count {
            programs.push(Running::start_ready(fixtures.messy("jobs"))?);
        }
        let begun = Instant::now();
        agent.wait_for("all of them", |agent| Ok((status(agent, "processes")? >= count as f64).then_some(())))?;
        let found = begun.elapsed();
        sleep(settle);
        costs.push(cost(&agent, count, phase, found)?);
    }
    drop(programs);
    agent.end()?;
    Ok(figures(&costs))
}

fn status(agent: &Agent, name: &str) -> Result<f64> {
    agent.ask(&["status"])?[name].as_f64().with_context(|| format!("no {name}"))
}

fn cost(agent: &Agent, count: usize, phase: Duration, found: Duration) -> Result<Cost> {
    let (before, begun) = (status(agent, "cpu_ms")?, Instant::now());
    sleep(phase);
    let used = status(agent, "cpu_ms")? - before;
    Ok(Cost {
        processes: count as f64,
        cpu: used / begun.elapsed().as_secs_f64() / 10.0,
        memory: status(agent, "memory_bytes")? / f64::from(1 << 20),
        files: status(agent, "files")?,
        probes: status(agent, "probes")?,
        stretched: status(agent, "looks_stretched")?,
        found,
    })
}

fn figures(costs: &[Cost]) -> Vec<Figure> {
    let mut all = Vec::new();
    for cost in costs {
        let name = |what: &str| format!("{what}, {} processes", cost.processes);
        let note = format!("looks {} times as rare as configured", cost.stretched);
        all.push(Figure::single(name("CPU"), "% of a core", cost.cpu).goal(Goal::Below(CPU)).note(note));
        let memory = Figure::single(name("memory"), "MiB", cost.memory);
        let in_goal = cost.processes <= 100.0;
        all.push(if in_goal { memory.goal(Goal::Below(MEMORY)) } else { memory });
        all.push(Figure::single(name("descriptors"), "", cost.files));
        all.push(Figure::single(name("probes"), "", cost.probes));
        all.push(Figure::single(name("last one followed after"), "s", cost.found.as_secs_f64()));
    }
    let slope = |what: fn(&Cost) -> f64| slope(&costs.iter().map(|c| (c.processes, what(c))).collect::<Vec<_>>());
    all.push(Figure::single("CPU for each further process", "% of a core", slope(|cost| cost.cpu)));
    all.push(Figure::single("memory for each further process", "MiB", slope(|cost| cost.memory)));
    all.push(Figure::single("descriptors for each further process", "", slope(|cost| cost.files)));
    all
}

/// Of the line that fits best (least squares).
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let over: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let under: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    over / under
}
