//! Programs and processes that do not make it easy: running already, not Python, in containers, forking, dying.

mod attach;
pub mod containers;
mod misc;
mod multiprocessing;
mod processes;
mod programs;
mod versions;

use std::{fs, os::unix::fs::FileExt as _};

use anyhow::{Context as _, Result, ensure};
use tfmem::{
    attach::plan,
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

/// Compares the places of all probes in the code of a process with the files they are in: a probe that is in is a
/// breakpoint in place of the instruction. Returns how many places there are, and how many differ.
fn probes_in(pid: u32) -> Result<(usize, usize)> {
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    let (mut places, mut changed) = (0, 0);
    for line in maps::read(pid)?.iter().filter(|line| line.executable && line.inode != 0) {
        let path = line.map_file(pid);
        let (Ok(plan), Ok(file)) = (plan::resolve(&path), fs::File::open(&path)) else { continue };
        for point in &plan.points {
            let Some(inside) = point.file_offset.checked_sub(line.offset).filter(|inside| *inside < line.len()) else {
                continue;
            };
            let (mut real, mut now) = ([0; 1], [0; 1]);
            file.read_exact_at(&mut real, point.file_offset)?;
            memory.read_exact_at(&mut now, line.start + inside)?;
            places += 1;
            changed += usize::from(real != now);
        }
    }
    Ok((places, changed))
}
