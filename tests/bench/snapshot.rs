//! What a snapshot costs, against a bare read of the same pages in the same round.

use std::{path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use tfmem::{
    snapshot::{model::Snapshot, space::Space},
    target::{
        info,
        memory::{Memory as _, Remote},
    },
};
use tfmem_tests::{machine, running::Running, snapshot};

use crate::figure::{Figure, Goal, Series};

pub const METHOD: &str = "\
A Python process that holds tensors of so many bytes in all (three quarters in variables of 64 MiB, the rest in tensors \
of 64 KiB), looked at by `tfmem snapshot --format json`. *Bare read*: `process_vm_readv` of all pages of the process's \
own that are resident, 256 KiB at once into one buffer, in the same round. *Whole*: `took_ms` of the snapshot; the inside \
of large tensors is not read, so it may be below a bare read. *Scan*: bytes of arenas and libraries' data in the time of \
that stage. *Peak*: the most that was ever resident of tfmem (`own_peak_bytes`), of which some 9 MB are its own code.";

/// A machine needs so many times the memory that is to be held.
const ROOM: u64 = 2;

pub fn measure(python: &Path, sizes: &[u64], rounds: usize) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for &mib in sizes {
        let name = if mib < 1024 { format!("{mib} MiB") } else { format!("{} GiB", mib >> 10) };
        let free = available_mib().context("/proc/meminfo does not say what is available")?;
        if free < mib * ROOM {
            let why = format!("{free} MiB are available");
            figures.push(Figure::unknown(format!("{name}: whole snapshot"), "ms", why));
            continue;
        }
        figures.extend(one(python, mib, &name, rounds)?);
    }
    Ok(figures)
}

fn available_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

fn one(python: &Path, mib: u64, name: &str, rounds: usize) -> Result<Vec<Figure>> {
    let script = machine::file("programs/snapshot_size.py");
    let program = Running::start_ready([python.as_os_str(), script.as_os_str(), mib.to_string().as_ref()])?;
    let pid = program.pid().to_string();
    let mut bare = Series::new(format!("{name}: bare read"), "ms");
    let mut whole = Series::new(format!("{name}: whole snapshot"), "ms");
    let mut scan = Series::new(format!("{name}: scan"), "GB/s");
    let mut peak = Series::new(format!("{name}: tfmem's peak memory"), "MB");
    let mut share = Series::new(format!("{name}: that of the process's resident memory"), "%");
    let mut stages: Vec<Series> = Vec::new();
    for _ in 0..rounds {
        bare.push(read(program.pid())?);
        let taken = snapshot::with(&["--pid", &pid])?;
        ensure_sound(&taken)?;
        let process = taken.processes.first().context("no process")?;
        whole.push(taken.took_ms as f64);
        peak.push(taken.own_peak_bytes as f64 / 1e6);
        share.push(taken.own_peak_bytes as f64 * 100.0 / process.rss_bytes as f64);
        for (index, stage) in process.stages.iter().enumerate() {
            if stages.len() == index {
                stages.push(Series::new(format!("{name}: stage {}", stage.name), "ms"));
            }
            stages[index].push(stage.us as f64 / 1e3);
            if stage.name == "scan" {
                scan.push(stage.bytes as f64 / 1e3 / stage.us.max(1) as f64);
            }
        }
    }
    let mut figures = vec![bare.figure(), whole.against(&bare).goal(Goal::Ratio(2.0)), scan.figure()];
    figures.extend(stages.iter().map(Series::figure));
    figures.extend([peak.figure(), share.figure().goal(Goal::Below(33.3))]);
    Ok(figures)
}

fn ensure_sound(taken: &Snapshot) -> Result<()> {
    taken.processes.iter().try_for_each(snapshot::ensure_checked)
}

/// Milliseconds of a plain read of what is resident and the process's own.
fn read(pid: u32) -> Result<f64> {
    ensure!(info::alive(pid), "the program has ended");
    let (space, memory) = (Space::read(pid)?, Remote::open(pid)?);
    let mut buffer = vec![0; 256 << 10];
    let begun = Instant::now();
    for area in space.areas.iter().filter(|area| area.readable) {
        for part in space.own(area.range.clone()) {
            for at in part.clone().step_by(buffer.len()) {
                let len = (part.end - at).min(buffer.len() as u64) as usize;
                memory.read(at, &mut buffer[..len]).context("a page could not be read")?;
            }
        }
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}
