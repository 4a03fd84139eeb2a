//! Probes that are taken out again while tfmem goes on.

use std::{os::fd::OwnedFd, path::Path};

use anyhow::Result;
use aya::programs::{UProbe, uprobe::UProbeLink};

use super::{Programs, multi::Multi, program};
use crate::attach::plan::Point;

/// Probes in one file. Dropping it takes them out, for which the kernel takes tens of milliseconds for each link.
#[derive(Default)]
pub struct Kept {
    probes: usize,
    /// Held until they are dropped: each of many probes.
    _multi: Vec<OwnedFd>,
    /// The same, each of one.
    _perf: Vec<UProbeLink>,
}

impl Kept {
    #[must_use]
    pub const fn len(&self) -> usize {
        self.probes
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.probes == 0
    }

    /// Takes the probes out without waiting for it.
    pub fn remove(self) {
        if self.is_empty() {
            return;
        }
        // Without a thread they go here and now.
        if let Err(error) = std::thread::Builder::new().name("unprobe".into()).spawn(move || drop(self)) {
            log::debug!("probes are taken out while others wait: {error}");
        }
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} probes", self.probes)
    }
}

impl Programs {
    /// As [`Programs::attach_points`], for probes that may go before tfmem does. Returns what the kernel refused, too.
    pub fn attach_kept<'a>(
        &mut self,
        path: &Path,
        points: impl IntoIterator<Item = &'a Point>,
    ) -> (Kept, Vec<(String, String)>) {
        let points: Vec<Point> = points.into_iter().cloned().collect();
        if let Ok(before) = self.multi.as_ref().map(Multi::links) {
            let refused = self.attach_points(path, &points);
            let multi = self.multi.as_mut().map_or_else(|_| Vec::new(), |multi| multi.take_links_from(before));
            return (Kept { probes: points.len() - refused.len(), _multi: multi, _perf: Vec::new() }, refused);
        }
        let (mut perf, mut refused) = (Vec::new(), Vec::new());
        for point in &points {
            match self.attach_one(path, point) {
                Ok(link) => perf.push(link),
                Err(error) => refused.push((point.symbol.clone(), format!("{error:#}"))),
            }
        }
        (Kept { probes: perf.len(), _multi: Vec::new(), _perf: perf }, refused)
    }

    fn attach_one(&mut self, path: &Path, point: &Point) -> Result<UProbeLink> {
        let link = self.attach_by_perf_event(path, &point.program, &(point.file_offset, point.cookie))?;
        let program: &mut UProbe = program(&mut self.ebpf, &point.program)?;
        Ok(program.take_link(link)?)
    }
}
