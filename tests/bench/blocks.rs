//! Real programs that work in blocks: the same process, in turns with and without tfmem attached.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tfmem::attach::link::runs;
use tfmem_tests::{attach::Attach, machine};

use crate::figure::{Figure, Goal, Series, median};

const LIMIT: Duration = Duration::from_secs(120);

const PROGRAMS: &[(&str, &str, Option<Goal>)] = &[
    ("a Keras fit", "fit", Some(Goal::Ratio(1.03))),
    ("a loop of TF1 sessions", "sessions", Some(Goal::Ratio(1.03))),
    ("a pool storm (eager additions)", "pool", None),
];

/// `trap_ns`: what an empty probe costs, where it was measured.
pub fn measure(python: &Path, rounds: usize, phase: Duration, trap_ns: Option<f64>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for &program in PROGRAMS {
        figures.extend(one(python, program, rounds, phase, trap_ns).with_context(|| program.0)?);
    }
    Ok(figures)
}

/// What a block took.
#[derive(Clone, Copy)]
struct Took {
    /// Median of the blocks
    wall_ms: f64,
    /// CPU time of all of the program's threads, the kernel's part included; mean of the blocks
    cpu_ms: f64,
}

fn one(
    python: &Path,
    (name, what, goal): (&str, &str, Option<Goal>),
    rounds: usize,
    phase: Duration,
    trap_ns: Option<f64>,
) -> Result<Vec<Figure>> {
    let mut program = Blocks::start(python, what)?;
    let series = |what: &str| Series::new(format!("{name}: {what}"), "ms");
    let (mut bare, mut traced) = (series("a block, untraced"), series("a block, tfmem attached"));
    let (mut bare_cpu, mut traced_cpu) =
        (series("CPU time of a block, untraced"), series("CPU time of a block, tfmem attached"));
    let mut hits = Series::new(format!("{name}: probes hit in a block"), "");
    let (mut events, mut seconds, mut cpu_ms) = (0, 0.0, 0);
    let mut before = program.blocks_of(phase)?;
    for _ in 0..rounds {
        let begun = Instant::now();
        let attach = Attach::to(&[program.pid()], &["--grace", "100ms"])?;
        // The first look at the process is not what the goal is about.
        sleep(Duration::from_millis(300));
        let took = program.blocks_of(phase)?;
        traced.push(took.wall_ms);
        traced_cpu.push(took.cpu_ms);
        hits.push(program.hits(attach.pid())?);
        seconds += begun.elapsed().as_secs_f64();
        let report = attach.interrupt()?.report;
        events += report.events;
        cpu_ms += report.cost.as_ref().map_or(0, |cost| cost.cpu_ms);
        // Before and after: a program that gets slower by itself does so on both sides.
        let after = program.blocks_of(phase)?;
        bare.push(f64::midpoint(before.wall_ms, after.wall_ms));
        bare_cpu.push(f64::midpoint(before.cpu_ms, after.cpu_ms));
        before = after;
    }
    let figure = traced.against(&bare);
    let figure = if let Some(goal) = goal { figure.goal(goal) } else { figure };
    let rate = Figure::single(format!("{name}: events"), "a second", events as f64 / seconds);
    let own = Figure::single(format!("{name}: tfmem's own CPU"), "% of a core", cpu_ms as f64 / 10.0 / seconds)
        .note("with its start and its report");
    let mut figures = vec![bare.figure(), figure, bare_cpu.figure(), traced_cpu.against(&bare_cpu), hits.figure()];
    if let Some(trap_ns) = trap_ns {
        let traps = hits.scaled(format!("{name}: their traps alone, at {trap_ns:.0} ns each"), "ms", trap_ns / 1e6);
        figures.push(traps.against(&bare_cpu));
    }
    figures.extend([rate, own]);
    Ok(figures)
}

/// A program that prints how long each block took.
struct Blocks {
    child: Child,
    done: Arc<Mutex<Vec<(Instant, f64)>>>,
}

impl Blocks {
    fn start(python: &Path, what: &str) -> Result<Self> {
        let mut child = Command::new(python)
            .arg(machine::file("programs/blocks.py"))
            .arg(what)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .env_remove("LD_LIBRARY_PATH")
            .env("TF_CPP_MIN_LOG_LEVEL", "3")
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let done = Arc::new(Mutex::new(Vec::new()));
        let told = done.clone();
        // Ends with the program.
        thread::spawn(move || {
            for seconds in output.lines().map_while(Result::ok).filter_map(|line| line.parse().ok()) {
                told.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), seconds));
            }
        });
        let blocks = Self { child, done };
        let begun = Instant::now();
        while blocks.done().len() < 3 {
            ensure!(begun.elapsed() < LIMIT, "it does no work");
            sleep(Duration::from_millis(50));
        }
        Ok(blocks)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The blocks that begin and end from the next one's beginning on: for this time, and at least three.
    fn blocks_of(&mut self, phase: Duration) -> Result<Took> {
        let begun = Instant::now();
        let first = self.next_end()?;
        let cpu = self.cpu_ms()?;
        loop {
            let last = self.next_end()?;
            if begun.elapsed() >= phase && last >= first + 3 {
                let cpu_ms = (self.cpu_ms()? - cpu) / (last - first) as f64;
                let walls = self.done().iter().take(last).skip(first).map(|(_, seconds)| seconds * 1e3).collect();
                return Ok(Took { wall_ms: median(walls).context("no block")?, cpu_ms });
            }
        }
    }

    /// How many of a process's uprobes are hit in a block. Counting costs them a little: not while anything else is measured.
    fn hits(&mut self, tracer: u32) -> Result<f64> {
        let _counting = runs::count()?;
        self.next_end()?;
        let (before, first) = (runs::uprobe_hits(tracer)?, self.done().len());
        self.blocks_of(Duration::from_secs(1))?;
        let (after, last) = (runs::uprobe_hits(tracer)?, self.done().len());
        Ok((after - before) as f64 / (last - first) as f64)
    }

    /// Waits for the next block to end; how many have ended then.
    fn next_end(&self) -> Result<usize> {
        let (begun, before) = (Instant::now(), self.done().len());
        loop {
            let now = self.done().len();
            if now > before {
                return Ok(now);
            }
            ensure!(begun.elapsed() < LIMIT, "it does no work");
            sleep(Duration::from_millis(2));
        }
    }

    /// CPU time of all its threads, those that have ended included.
    fn cpu_ms(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).context("no name in stat")?;
        // utime and stime, in ticks of 10 ms (USER_HZ is 100 on x86-64).
        let ticks: f64 =
            after_name.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
        Ok(ticks * 10.0)
    }

    fn done(&self) -> MutexGuard<'_, Vec<(Instant, f64)>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
