//! What every look at a process begins with: its mappings, which pages are resident, the C heap.

use std::{
    io,
    time::{Duration, Instant},
};

use super::{
    heap::{self, Heap},
    model,
    space::Space,
};
use crate::{
    event,
    observe::snapshot::totals,
    python::{Runtime, Version},
    target::memory::Remote,
};

pub struct Ground {
    pub pid: u32,
    pub totals: event::Snapshot,
    pub space: Space,
    /// `None`: no heap of glibc's, or its memory may not be read.
    pub heap: Option<Heap>,
}

impl Ground {
    /// # Errors
    /// When the process is gone or may not be looked at. Its memory need not be readable.
    pub fn read(pid: u32, memory: Option<&Remote>, clock: &mut Clock) -> io::Result<Self> {
        let totals = totals(pid)?;
        let space = Space::read(pid)?;
        clock.stage("mappings", 0);
        let heap = memory.and_then(|memory| heap::read(memory, &space));
        let walked = heap.as_ref().map_or(0, |heap| heap.arenas.iter().map(|arena| arena.system).sum());
        clock.stage("arenas", walked);
        Ok(Self { pid, totals, space, heap })
    }

    /// Which Python runs in it.
    #[must_use]
    pub fn python(&self, clock: &mut Clock) -> Option<Version> {
        let version = Runtime::find(self.pid).ok().map(|python| python.layout.version);
        clock.stage("python", 0);
        version
    }
}

/// How long each stage took, and how much it read.
#[derive(Debug)]
pub struct Clock {
    last: Instant,
    pub stages: Vec<model::Stage>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { last: Instant::now(), stages: Vec::new() }
    }
}

impl Clock {
    pub fn stage(&mut self, name: &str, bytes: u64) {
        let spent: Duration = self.last.elapsed();
        self.stages.push(model::Stage { name: name.to_owned(), us: spent.as_micros() as u64, bytes });
        self.last = Instant::now();
    }
}
