//! Attaching to a running TensorFlow, being attached to it while it does nothing, and leaving it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tfmem::attach::plan;
use tfmem_tests::{machine, running::Running};

use crate::figure::{Figure, Goal, Series};

const LIMIT: Duration = Duration::from_secs(60);

pub fn measure(python: &Path, rounds: usize, idle: Duration) -> Result<Vec<Figure>> {
    let script = "import time, tensorflow; print('ready', flush=True); time.sleep(3600)";
    let target = Running::start_ready([python.as_os_str(), "-c".as_ref(), script.as_ref()])?;
    let mut uncached = Series::new("attach to TensorFlow 2.21, symbols not in the cache", "ms");
    let mut cached = Series::new("attach to TensorFlow 2.21, symbols in the cache", "ms");
    let mut report = Series::new("Ctrl-C until the report is written", "ms");
    let mut detach = Series::new("Ctrl-C until all probes are out", "ms");
    let mut cached_perf = Series::new("the same by perf events (`--attach perf`), symbols in the cache", "ms");
    let mut detach_perf = Series::new("by perf events: Ctrl-C until all probes are out", "ms");
    let mut figures = Vec::new();
    for round in 0..rounds {
        let cache = TempDir::new()?;
        let attach = |how| Tfmem::attach(target.pid(), cache.path(), how);
        // It fills the cache.
        let (mut tfmem, took) = attach("auto")?;
        uncached.push(took);
        if round == 0 {
            figures = tfmem.while_idle(idle)?;
        }
        tfmem.end()?;
        let (mut tfmem, took) = attach("auto")?;
        cached.push(took);
        let (written, ended) = tfmem.end()?;
        report.push(written);
        detach.push(ended);
        let (mut tfmem, took) = attach("perf")?;
        cached_perf.push(took);
        detach_perf.push(tfmem.end()?.1);
    }
    let mut all = vec![cached.figure().goal(Goal::Below(300.0)), uncached.figure().goal(Goal::Below(2000.0))];
    all.extend([report.figure(), detach.figure(), cached_perf.against(&cached), detach_perf.against(&detach)]);
    all.extend(figures);
    Ok(all)
}

/// A `tfmem trace` under way.
struct Tfmem {
    child: Child,
    folder: TempDir,
}

impl Tfmem {
    /// Milliseconds from its start until it says that it is attached.
    fn attach(pid: u32, cache: &Path, how: &str) -> Result<(Self, f64)> {
        let folder = TempDir::new()?;
        let begun = Instant::now();
        let child = Command::new(machine::tfmem()?)
            .args(["trace", "--attach", how, "--report-file"])
            .arg(folder.path().join("report"))
            .args(["--pid", &pid.to_string()])
            .env("TFMEM_CACHE", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("stderr"))?)
            .spawn()?;
        let mut tfmem = Self { child, folder };
        while !fs::read_to_string(tfmem.folder.path().join("stderr"))?.contains("attached to") {
            ensure!(tfmem.child.try_wait()?.is_none() && begun.elapsed() < LIMIT, "not attached");
            sleep(Duration::from_millis(1));
        }
        Ok((tfmem, milliseconds(begun)))
    }

    /// What it costs while nothing happens.
    fn while_idle(&self, idle: Duration) -> Result<Vec<Figure>> {
        // It looks closely for a second after the last event.
        sleep(Duration::from_secs(2));
        let (before, begun) = (self.scheduled()?, Instant::now());
        sleep(idle);
        let (after, seconds) = (self.scheduled()?, begun.elapsed().as_secs_f64());
        let cpu = (after.0 - before.0) as f64 / 1e9 / seconds * 100.0;
        Ok(vec![
            Figure::single("attached to an idle process: CPU", "% of a core", cpu).goal(Goal::Below(0.1)),
            Figure::single("attached to an idle process: wake-ups", "a second", (after.1 - before.1) as f64 / seconds),
        ])
    }

    /// Nanoseconds on a processor, and how often it got one, of all threads.
    fn scheduled(&self) -> Result<(u64, u64)> {
        let (mut nanoseconds, mut times) = (0, 0);
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat"))?;
            let mut numbers = text.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(ran)), Some(Ok(_)), Some(Ok(slices))) = (numbers.next(), numbers.next(), numbers.next())
            else {
                bail!("schedstat is {text:?}")
            };
            nanoseconds += ran;
            times += slices;
        }
        Ok((nanoseconds, times))
    }

    /// Milliseconds from Ctrl-C until the report is there, and until it has ended.
    fn end(&mut self) -> Result<(f64, f64)> {
        let begun = Instant::now();
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?;
        let report = self.folder.path().join("report");
        while !report.metadata().is_ok_and(|found| found.len() > 0) {
            ensure!(begun.elapsed() < LIMIT, "no report");
            sleep(Duration::from_millis(1));
        }
        let written = milliseconds(begun);
        while self.child.try_wait()?.is_none() {
            ensure!(begun.elapsed() < LIMIT, "it does not end");
            sleep(Duration::from_millis(1));
        }
        Ok((written, milliseconds(begun)))
    }
}

impl Drop for Tfmem {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

/// The same library and some of the same symbols, by a general tracer.
pub fn bpftrace(python: &Path, numbers: &[usize]) -> Result<Vec<Figure>> {
    let library = library(python)?;
    let mut symbols: Vec<String> = plan::resolve(&library)?.points.into_iter().map(|point| point.symbol).collect();
    symbols.sort();
    symbols.dedup();
    let version = Command::new("bpftrace").arg("--version").output();
    let version = version.ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().replace("bpftrace v", ""));
    let one = |&number: &usize| {
        let name = format!("bpftrace: attach {number} of the same symbols");
        let Some(version) = &version else { return Figure::unknown(name, "ms", "bpftrace is not installed") };
        match attach_bpftrace(&library, symbols.get(..number).unwrap_or(&symbols)) {
            Ok(took) => Figure::single(name, "ms", took).note(format!("version {version}, one run")),
            Err(error) => Figure::unknown(name, "ms", format!("version {version}: {error:#}")),
        }
    };
    Ok(numbers.iter().map(one).collect())
}

/// It says so when all of its probes are in and it reads its buffer.
fn attach_bpftrace(library: &Path, symbols: &[String]) -> Result<f64> {
    let probes = symbols.iter().map(|symbol| format!("uprobe:{}:{symbol}", library.display()));
    let program =
        format!("{} {{ @[0] = count(); }} interval:ms:1 {{ exit(); }}", probes.collect::<Vec<_>>().join(", "));
    let begun = Instant::now();
    let output = Command::new("timeout").args(["150", "bpftrace", "-B", "line", "-e", &program]).output()?;
    let took = milliseconds(begun);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.lines().last().unwrap_or("it failed"));
    Ok(took)
}

fn library(python: &Path) -> Result<PathBuf> {
    let environment = python.parent().and_then(Path::parent).context("not in an environment")?;
    fs::read_dir(environment.join("lib"))?
        .flatten()
        .map(|version| version.path().join("site-packages/tensorflow/libtensorflow_cc.so.2"))
        .find(|path| path.exists())
        .context("the environment has no libtensorflow_cc.so.2")
}
