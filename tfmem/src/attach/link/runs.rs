//! How often a program ran, as the kernel counts it: whether a probe fires at all.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use aya::{
    programs::{Program, ProgramInfo},
    sys::{Stats, enable_stats},
};

use super::Programs;

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
