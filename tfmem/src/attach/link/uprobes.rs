//! Putting probes into libraries: the two ways of it, and taking them out.

use std::{fmt, path::Path, thread};

use anyhow::{Context as _, Result, bail};
use aya::{
    Ebpf,
    programs::{
        Program, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope},
    },
};

use super::{
    Programs,
    multi::{Multi, supported},
    program,
};
use crate::attach::plan::{Plan, Point};

/// How probes go into libraries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// By uprobe-multi links where the kernel has them.
    #[default]
    Auto,
    Multi,
    /// By a perf event for each.
    Perf,
}

/// A place in a file, and the cookie that tells the program which.
pub type Spot = (u64, u64);

impl Attach {
    /// Opens the programs for uprobe-multi links if they are wanted and possible; else why not.
    ///
    /// # Errors
    /// When nothing else is wanted and they are not possible.
    pub(super) fn open(self, object: &[u8], ebpf: &Ebpf) -> Result<Result<Multi, Chosen>> {
        if self == Self::Perf {
            return Ok(Err(Chosen::Perf));
        }
        match supported() {
            Err(error) if self == Self::Multi => {
                bail!("the kernel has no uprobe-multi links, which come with Linux 6.6 ({error}): use --attach auto")
            }
            Err(error) => Ok(Err(Chosen::Only(error.to_string()))),
            Ok(()) => Multi::open(object, ebpf).map(Ok).context("make the BPF programs ready for uprobe-multi links"),
        }
    }
}

/// Which way it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    Multi,
    /// Asked for.
    Perf,
    /// Perf events, and what the kernel said to the other.
    Only(String),
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Multi => f.write_str("multi"),
            Self::Perf => f.write_str("perf"),
            Self::Only(why) => write!(f, "perf; multi: {why}"),
        }
    }
}

impl Programs {
    /// Puts the probes of a plan into the file behind `path`, for all processes that map it (programs leave at once
    /// for processes that are not traced). Returns what the kernel refused.
    pub fn attach(&mut self, path: &Path, plan: &Plan) -> Vec<(String, String)> {
        self.attach_points(path, &plan.points)
    }

    /// The same for single points.
    pub fn attach_points(&mut self, path: &Path, points: &[Point]) -> Vec<(String, String)> {
        // Those at returns first: who is on the way into a function meanwhile is seen to leave, and not seen to stay.
        let mut programs: Vec<(bool, &str)> = points.iter().map(|point| (!point.ret, point.program.as_str())).collect();
        programs.sort_unstable();
        programs.dedup();
        let mut refused = Vec::new();
        for (_, name) in programs {
            let points: Vec<&Point> = points.iter().filter(|point| point.program == name).collect();
            let spots: Vec<Spot> = points.iter().map(|point| (point.file_offset, point.cookie)).collect();
            let symbols = self.attach_spots(path, name, &spots).into_iter();
            refused.extend(symbols.filter_map(|(number, why)| Some((points.get(number)?.symbol.clone(), why))));
        }
        refused
    }

    /// Puts one loaded program at a place in a file.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_point(&mut self, path: &Path, name: &str, offset: u64, cookie: u64) -> Result<()> {
        match self.attach_spots(path, name, &[(offset, cookie)]).pop() {
            None => Ok(()),
            Some((_, why)) => bail!(why),
        }
    }

    /// Puts one loaded program at places in a file. Returns what the kernel refused: the place's number, and why.
    pub fn attach_spots(&mut self, path: &Path, name: &str, spots: &[Spot]) -> Vec<(usize, String)> {
        match &mut self.multi {
            Ok(multi) => multi.attach(path, name, spots),
            Err(_) => {
                let each = spots.iter().map(|spot| self.attach_by_perf_event(path, name, spot));
                let refused = each.enumerate().filter_map(|(number, done)| Some((number, done.err()?)));
                refused.map(|(number, error)| (number, format!("{error:#}"))).collect()
            }
        }
    }

    pub(super) fn attach_by_perf_event(
        &mut self,
        path: &Path,
        name: &str,
        &(offset, cookie): &Spot,
    ) -> Result<UProbeLinkId> {
        let program: &mut UProbe = program(&mut self.ebpf, name)?;
        let point = UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(offset), cookie: Some(cookie) };
        Ok(program.attach(point, path, UProbeScope::AllProcesses)?)
    }

    /// How probes go into libraries, and why not the better way.
    pub fn attaching(&self) -> Chosen {
        self.multi.as_ref().map_or_else(Clone::clone, |_| Chosen::Multi)
    }
}

/// At each probe that it takes out the kernel waits until nobody runs its program any more. For links of different
/// places it waits at the same time; for perf events it does not.
impl Drop for Programs {
    fn drop(&mut self) {
        let links = self.multi.as_mut().map_or_else(|_| Vec::new(), |multi| multi.take_links_from(0));
        thread::scope(|scope| {
            for link in links {
                // A thread that cannot be made drops its link here.
                let _ = thread::Builder::new().name("detach".into()).spawn_scoped(scope, move || drop(link));
            }
            for (_, program) in self.ebpf.programs_mut() {
                // What is not loaded has no links.
                let _ = match program {
                    Program::TracePoint(program) => program.unload(),
                    Program::KProbe(program) => program.unload(),
                    Program::UProbe(program) => program.unload(),
                    _ => continue,
                };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_which_way_and_why() {
        assert_eq!(Chosen::Multi.to_string(), "multi");
        assert_eq!(Chosen::Perf.to_string(), "perf");
        assert_eq!(Chosen::Only("Invalid argument".to_owned()).to_string(), "perf; multi: Invalid argument");
    }
}
