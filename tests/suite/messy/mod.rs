//! Programs and processes that do not make it easy: running already, not Python, in containers, forking, dying.

mod attach;
pub mod containers;
mod misc;
mod multiprocessing;
mod processes;
mod programs;
mod training;
mod versions;

use std::{
    fs,
    os::unix::fs::FileExt as _,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tfmem::{
    attach::cache::Cache,
    report::model::{Process, Report},
    target::maps,
};

fn process(report: &Report, pid: u32) -> Result<&Process> {
    let pids: Vec<u32> = report.processes.iter().map(|process| process.pid).collect();
    report.processes.iter().find(|process| process.pid == pid).with_context(|| format!("no {pid} in {pids:?}"))
}

fn by_argument<'a>(report: &'a Report, argument: &str) -> Vec<&'a Process> {
    report.processes.iter().filter(|process| process.cmdline.iter().any(|word| word == argument)).collect()
}

/// A list of mappings is read line by line while a process runs: its drift is of no one moment, and no loss.
fn no_losses(report: &Report) -> Result<()> {
    let mut lost = report.losses.iter().filter(|(kind, _)| *kind != "mapping_drift_bytes");
    ensure!(lost.all(|(_, &count)| count == 0), "losses: {:?}", report.losses);
    Ok(())
}

/// The places of all probes in the code of a process. A probe that is in is a breakpoint in place of the instruction
/// that the file has there.
struct Places {
    memory: fs::File,
    /// Address, and what the file has there.
    places: Vec<(u64, u8)>,
}

impl Places {
    fn of(pid: u32) -> Result<Self> {
        let cache = Cache::open();
        let mut places = Vec::new();
        for line in maps::read(pid)?.iter().filter(|line| line.executable && line.inode != 0) {
            let path = line.map_file(pid);
            let (Ok(plan), Ok(file)) = (cache.resolve(&path), fs::File::open(&path)) else { continue };
            for point in &plan.points {
                let inside = point.file_offset.checked_sub(line.offset).filter(|inside| *inside < line.len());
                let Some(inside) = inside else { continue };
                let mut real = [0];
                file.read_exact_at(&mut real, point.file_offset)?;
                places.push((line.start + inside, real[0]));
            }
        }
        Ok(Self { memory: fs::File::open(format!("/proc/{pid}/mem"))?, places })
    }

    /// How many probes are in.
    fn probed(&self) -> Result<usize> {
        let mut probed = 0;
        for &(address, real) in &self.places {
            let mut now = [0];
            self.memory.read_exact_at(&mut now, address)?;
            probed += usize::from(now[0] != real);
        }
        Ok(probed)
    }

    fn all_are_in(&self) -> Result<()> {
        let (places, probed) = (self.places.len(), self.probed()?);
        ensure!(places > 5 && probed == places, "{probed} of {places} probes are in");
        Ok(())
    }

    /// The kernel takes the probes out a moment after tfmem's end. Another tfmem that traces the same file keeps them in:
    /// that is waited for.
    fn none_is_left(&self) -> Result<()> {
        const OURS: Duration = Duration::from_secs(10);
        const OTHERS: Duration = Duration::from_secs(120);
        let begun = Instant::now();
        let mut alone = begun;
        loop {
            let probed = self.probed()?;
            if probed == 0 {
                return Ok(());
            }
            if another_tfmem()? {
                alone = Instant::now();
            }
            ensure!(alone.elapsed() < OURS, "{probed} probes are still in");
            ensure!(begun.elapsed() < OTHERS, "{probed} probes are in, and somebody else traces here");
            sleep(Duration::from_millis(50));
        }
    }
}

fn another_tfmem() -> Result<bool> {
    let names = fs::read_dir("/proc")?.flatten().map(|entry| fs::read_to_string(entry.path().join("comm")));
    Ok(names.flatten().any(|name| name.starts_with("tfmem")))
}
