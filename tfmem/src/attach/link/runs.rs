//! How often a program ran, as the kernel counts it: whether a probe fires at all.

use std::{collections::BTreeSet, fs, os::fd::OwnedFd};

use anyhow::{Context as _, Result};
use aya::{
    programs::{Program, ProgramInfo, loaded_programs},
    sys::{Stats, enable_stats},
};

use super::{Programs, UPROBES};

/// While it lives, the kernel counts (which costs every program on this machine a little).
#[derive(Debug)]
pub struct Counting {
    _stats: OwnedFd,
}

/// # Errors
/// When the kernel does not count (before 5.8), or not for us.
pub fn count() -> Result<Counting> {
    Ok(Counting { _stats: enable_stats(Stats::RunTime).context("count the runs of BPF programs")? })
}

/// Runs of the uprobe programs that another process holds, while somebody counted.
///
/// # Errors
/// When the process cannot be looked at, or the kernel does not tell of its programs.
pub fn uprobe_hits(pid: u32) -> Result<u64> {
    let mut held = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).with_context(|| format!("look at process {pid}"))? {
        // A descriptor that was closed meanwhile held nothing that runs.
        let text = entry.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default())?;
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok());
        held.extend(id);
    }
    let mut hits = 0;
    for info in loaded_programs() {
        let info = info.context("list the kernel's BPF programs")?;
        if held.contains(&info.id())
            && info.name_as_str().is_some_and(|name| UPROBES.iter().any(|uprobe| is(uprobe, name)))
        {
            hits += info.run_count();
        }
    }
    Ok(hits)
}

/// The kernel keeps the first 15 bytes of a program's name.
fn is(name: &str, kept: &str) -> bool {
    name.get(..15).unwrap_or(name) == kept
}

impl Programs {
    /// Runs of a loaded program while somebody counted; `None`: it is not loaded.
    #[must_use]
    pub fn runs(&self, name: &str) -> Option<u64> {
        match &self.multi {
            Ok(multi) if multi.has(name) => multi.figure(name, "run_cnt"),
            _ => self.info(name).map(|info| info.run_count()),
        }
    }

    fn info(&self, name: &str) -> Option<ProgramInfo> {
        match self.ebpf.program(name)? {
            Program::UProbe(program) => program.info(),
            Program::TracePoint(program) => program.info(),
            Program::KProbe(program) => program.info(),
            _ => return None,
        }
        .ok()
    }
}
