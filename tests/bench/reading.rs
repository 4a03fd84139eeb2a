//! What events cost tfmem itself: to decode and to account for, in memory, in a recording.

use std::{path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tfmem::{
    event::{Body, Event, Origin},
    retention::{Analysis, Options},
    stream::{
        decode::{Record, decode},
        order::Order,
    },
    target::info,
};
use tfmem_tests::{
    fixtures::{FRAMEWORK, Fixtures, Variant},
    machine,
    program::Program,
    trace::{Trace, Traced},
};

use crate::{
    figure::{Figure, Goal, Series},
    probes::Chunks,
};

/// One of a trace's batches.
const BATCH: usize = 4096;
const LIVE: &str = "1000000";

pub fn measure(fixtures: &Fixtures, chunks: &Chunks, rounds: usize, pairs: u64) -> Result<Vec<Figure>> {
    let library = fixtures.library(Variant::Plain, FRAMEWORK);
    let folder = library.parent().context("the library has no folder")?;
    let producing = chunks.traced.beyond(&chunks.bare, "producing the same event");
    let mut reading = Series::new("decoding and ledger, one event", "ns");
    for _ in 0..rounds {
        reading.push(decode_and_account(&chunks.records)?);
    }
    let whole = whole(fixtures, folder, rounds, pairs)?;
    let mut figures = vec![producing.figure(), reading.against(&producing).goal(Goal::Ratio(0.2))];
    figures.push(whole.against(&producing).note("reading the buffer, ordering, handing over"));
    figures.extend(memory(fixtures, folder)?);
    figures.extend(mappings(fixtures, rounds, pairs)?);
    Ok(figures)
}

/// Nanoseconds for each of these records, on one thread, as a trace treats them.
fn decode_and_account(records: &[Vec<u8>]) -> Result<f64> {
    let mut analysis = Analysis::new(Options::default());
    let mut order = Order::default();
    let mut ready = Vec::new();
    let begun = Instant::now();
    for batch in records.chunks(BATCH) {
        let mut latest = 0;
        for record in batch {
            if let Record::Event(event) = decode(record)? {
                latest = event.at.max(latest);
                order.push(event);
            }
        }
        order.release(latest, &mut ready);
        ready.drain(..).for_each(|event| analysis.feed(&event));
    }
    order.flush(&mut ready);
    ready.drain(..).for_each(|event| analysis.feed(&event));
    Ok(begun.elapsed().as_secs_f64() * 1e9 / records.len() as f64)
}

/// All CPU time of a trace for each event, less that of a trace of next to nothing.
fn whole(fixtures: &Fixtures, folder: &Path, rounds: usize, pairs: u64) -> Result<Series> {
    let mut series = Series::new("tfmem's whole CPU time, one event", "ns");
    for _ in 0..rounds.min(3) {
        let run = |pairs: u64| storm(fixtures, &[folder.as_os_str(), pairs.to_string().as_ref()]);
        let (least, most) = (run(1)?, run(pairs)?);
        ensure!(lost(&most) == 0, "events were lost: {:?}", most.report.losses);
        let cpu = |traced: &Traced| traced.report.cost.as_ref().map(|cost| cost.cpu_ms as f64 * 1e6);
        let beyond = cpu(&most).zip(cpu(&least)).map(|(most, least)| most - least).context("the report has no cost")?;
        series.push(beyond / (most.report.events - least.report.events) as f64);
    }
    Ok(series)
}

fn lost(traced: &Traced) -> u64 {
    traced.report.losses.iter().filter(|(kind, _)| kind.starts_with("dropped")).map(|(_, count)| *count).sum()
}

fn memory(fixtures: &Fixtures, folder: &Path) -> Result<Vec<Figure>> {
    let peak = |count: &str| -> Result<f64> {
        let traced = storm(fixtures, &["live".as_ref(), folder.as_os_str(), count.as_ref()])?;
        ensure!(lost(&traced) == 0, "events were lost: {:?}", traced.report.losses);
        Ok(traced.report.cost.as_ref().context("the report has no cost")?.peak_rss_bytes as f64 / 1e6)
    };
    let output = Program::new(std::env::current_exe()?).args(["--ledger", LIVE]).run()?;
    let ledger = output.stdout.trim().parse().with_context(|| format!("the ledger said {}", output.stderr))?;
    Ok(vec![
        Figure::single("a million live allocations in the ledger", "MB", ledger).goal(Goal::Below(100.0)),
        Figure::single("tfmem's peak memory, nothing to hold", "MB", peak("1")?),
        Figure::single("tfmem's peak memory, a million allocations made at full speed", "MB", peak(LIVE)?),
    ])
}

/// Megabytes that so many live allocations take at most while they come, in a process of its own.
pub fn ledger(count: u64) -> Result<f64> {
    let own = |name| info::kib(std::process::id(), name).context("/proc does not say how large we are");
    let mut analysis = Analysis::new(Options::default());
    let before = own("VmRSS:")?;
    for i in 0..count {
        let origin = Origin { op: i % 100 + 1, step: 7, dtype: 1, ..Origin::default() };
        let body = Body::ChunkAlloc { pool: 4096, addr: (i + 16) << 8, requested: 200, bytes: 256, origin };
        analysis.feed(&Event::of(i, 1, 1, body));
    }
    Ok((own("VmHWM:")? - before) as f64 * 1024.0 / 1e6)
}

fn mappings(fixtures: &Fixtures, rounds: usize, pairs: u64) -> Result<Vec<Figure>> {
    let mut bare = Series::new("a mapping storm (mmap, touch, munmap): one call, untraced", "ns");
    let mut traced = Series::new("a mapping storm: one call, tfmem", "ns");
    let pairs = (pairs / 5).to_string();
    for _ in 0..rounds {
        let output = Program::new(fixtures.storm()).args(["map", &pairs]).run()?;
        bare.push(nanoseconds(&output.stdout)?);
        traced.push(nanoseconds(&storm(fixtures, &["map".as_ref(), pairs.as_ref()])?.output.stdout)?);
    }
    Ok(vec![bare.figure(), traced.against(&bare)])
}

fn storm(fixtures: &Fixtures, arguments: &[&std::ffi::OsStr]) -> Result<Traced> {
    let program = fixtures.storm();
    Trace::new()?.options(&["--grace", "10ms"]).run([program.as_os_str()].iter().chain(arguments))
}

fn nanoseconds(output: &str) -> Result<f64> {
    output.lines().next().and_then(|line| line.trim().parse().ok()).context("the storm said nothing")
}

/// A whole program from its start to its end, once: recorded, and without tfmem.
pub fn whole_program(python: &Path) -> Result<Vec<Figure>> {
    let folder = TempDir::new()?;
    let (recording, report) = (folder.path().join("trace"), folder.path().join("report"));
    let script = machine::file("programs/session_loop.py");
    let seconds = |program: Program| -> Result<f64> {
        let begun = Instant::now();
        let output = program.env("TF_CPP_MIN_LOG_LEVEL", "3").run()?;
        ensure!(output.code == 0, "it failed: {}", output.stderr);
        Ok(begun.elapsed().as_secs_f64())
    };
    let bare = seconds(Program::new(python).arg(&script))?;
    let tfmem = Program::new(machine::tfmem()?).args(["run", "--format", "json", "-o"]).arg(&recording);
    let traced = seconds(tfmem.arg("--report-file").arg(&report).arg("--").arg(python).arg(&script))?;
    let report: tfmem::report::model::Report = serde_json::from_slice(&std::fs::read(&report)?)?;
    let each = recording.metadata()?.len() as f64 / report.events as f64;
    let peak = report.cost.as_ref().context("the report has no cost")?.peak_rss_bytes as f64 / 1e6;
    let bare = Series::of("a TF1 program from start to end, untraced", "s", vec![bare]);
    let traced = Series::of("the same, recorded by `tfmem run -o`, until tfmem has ended", "s", vec![traced]);
    Ok(vec![
        bare.figure().note("one run, with the import"),
        traced.against(&bare).note("one run"),
        Figure::single("its recording, one event", "bytes", each).goal(Goal::Below(8.0)),
        Figure::single("tfmem's peak memory in it", "MB", peak),
    ])
}
