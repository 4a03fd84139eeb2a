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
use tfmem_tests::{attach::Attach, machine};

use crate::figure::{Figure, Goal, Series, median};

const LIMIT: Duration = Duration::from_secs(120);

const PROGRAMS: &[(&str, &str, Option<Goal>)] = &[
    ("a Keras fit", "fit", Some(Goal::Ratio(1.03))),
    ("a loop of TF1 sessions", "sessions", Some(Goal::Ratio(1.03))),
    ("a pool storm (eager additions)", "pool", None),
];

pub fn measure(python: &Path, rounds: usize, phase: Duration) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for &(name, what, goal) in PROGRAMS {
        figures.extend(one(python, name, what, goal, rounds, phase).with_context(|| name)?);
    }
    Ok(figures)
}

fn one(
    python: &Path,
    name: &str,
    what: &str,
    goal: Option<Goal>,
    rounds: usize,
    phase: Duration,
) -> Result<Vec<Figure>> {
    let mut program = Blocks::start(python, what)?;
    let mut bare = Series::new(format!("{name}: a block, untraced"), "ms");
    let mut traced = Series::new(format!("{name}: a block, tfmem attached"), "ms");
    let (mut events, mut seconds, mut cpu_ms) = (0, 0.0, 0);
    let mut before = program.median_of(phase)?;
    for _ in 0..rounds {
        let begun = Instant::now();
        let attach = Attach::to(&[program.pid()], &["--grace", "100ms"])?;
        // The first look at the process is not what the goal is about.
        sleep(Duration::from_millis(300));
        traced.push(program.median_of(phase)?);
        seconds += begun.elapsed().as_secs_f64();
        let report = attach.interrupt()?.report;
        events += report.events;
        cpu_ms += report.cost.as_ref().map_or(0, |cost| cost.cpu_ms);
        // Before and after: a program that gets slower by itself does so on both sides.
        let after = program.median_of(phase)?;
        bare.push(f64::midpoint(before, after));
        before = after;
    }
    let figure = traced.against(&bare);
    let figure = if let Some(goal) = goal { figure.goal(goal) } else { figure };
    let rate = Figure::single(format!("{name}: events"), "a second", events as f64 / seconds);
    let own = Figure::single(format!("{name}: tfmem's own CPU"), "% of a core", cpu_ms as f64 / 10.0 / seconds)
        .note("with its start and its report");
    Ok(vec![bare.figure(), figure, rate, own])
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

    /// Milliseconds of a block, of those that begin and end from now on: for this time, and at least three.
    fn median_of(&mut self, phase: Duration) -> Result<f64> {
        let begun = Instant::now();
        loop {
            sleep(Duration::from_millis(50));
            let done = self.done();
            let inside = done.iter().filter(|(end, seconds)| *end >= begun + Duration::from_secs_f64(*seconds));
            let milliseconds: Vec<f64> = inside.map(|(_, seconds)| seconds * 1e3).collect();
            if begun.elapsed() >= phase && milliseconds.len() >= 3 {
                return median(milliseconds).context("no block");
            }
            ensure!(begun.elapsed() < LIMIT, "it does no work");
        }
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
