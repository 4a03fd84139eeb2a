//! Probes that are taken out again while tfmem goes on.

use std::path::Path;

use aya::programs::{UProbe, uprobe::UProbeLink};

use super::{Point, Programs, program};
use anyhow::Result;

/// Probes in one file. Dropping it takes them out, for which the kernel takes tens of milliseconds each.
#[derive(Default)]
pub struct Kept(Vec<UProbeLink>);

impl Kept {
    /// Each is a file descriptor.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        write!(f, "{} probes", self.0.len())
    }
}

impl Programs {
    /// As [`Programs::attach_points`], for probes that may go before tfmem does. Returns what the kernel refused, too.
    pub fn attach_kept<'a>(
        &mut self,
        path: &Path,
        points: impl IntoIterator<Item = &'a Point>,
    ) -> (Kept, Vec<(String, String)>) {
        let (mut kept, mut refused) = (Kept::default(), Vec::new());
        for point in points {
            match self.attach_one(path, point) {
                Ok(link) => kept.0.push(link),
                Err(error) => refused.push((point.symbol.clone(), format!("{error:#}"))),
            }
        }
        (kept, refused)
    }

    fn attach_one(&mut self, path: &Path, point: &Point) -> Result<UProbeLink> {
        use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
        let program: &mut UProbe = program(&mut self.ebpf, &point.program)?;
        let location = UProbeAttachLocation::AbsoluteOffset(point.file_offset);
        let at = UProbeAttachPoint { location, cookie: Some(point.cookie) };
        let link = program.attach(at, path, UProbeScope::AllProcesses)?;
        Ok(program.take_link(link)?)
    }
}
