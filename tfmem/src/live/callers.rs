//! Which library asks a GPU's driver for memory: the place that a call returns to lies in one.

use std::{collections::BTreeMap, sync::Arc};

use super::libraries;
use crate::event::{Addr, Body, Event, Gpu};

/// Places in different code, of one process, that are asked about. A program that makes code as it runs has no more
/// libraries than that.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub struct Callers {
    /// Start and end of code that was told of, by process.
    known: BTreeMap<u32, Vec<(Addr, Addr)>>,
}

impl Callers {
    /// What must be said of the caller, when it is seen for the first time.
    pub fn meet(&mut self, event: &Event) -> Option<Event> {
        let Body::Gpu(Gpu::Taken(taken)) = &event.body else { return None };
        let caller = taken.caller;
        let known = self.known.entry(event.pid).or_default();
        if caller == 0 || known.len() >= MOST || known.iter().any(|(start, end)| (*start..*end).contains(&caller)) {
            return None;
        }
        let line = libraries::code_of(event.pid).into_iter().find(|line| (line.start..line.end).contains(&caller));
        known.push(line.as_ref().map_or((caller, caller.saturating_add(1)), |line| (line.start, line.end)));
        let line = line?;
        let code = Gpu::Code { start: line.start, end: line.end, path: Arc::from(line.name) };
        Some(Event::of(event.at, event.pid, event.tid, Body::Gpu(code)))
    }

    /// The process ended or became another program.
    pub fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }
}
