//! The per-process record of allocations and handles, built only from events.
//!
//! Pure: the same events give the same ledger. Nothing in an event makes it fail; what does not add up is counted in
//! [`Anomalies`](types::Anomalies).

mod calls;
pub mod distributed;
pub mod gpu;
mod handles;
pub mod map;
mod memory;
mod missed;
pub mod process;
mod reconcile;
pub mod sessions;
pub mod stacks;
mod table;
#[cfg(test)]
mod tests;
pub mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use map::{MappedRange, MemoryMap};
pub use process::Process;
pub use sessions::Sessions;
pub use stacks::Stacks;

use crate::event::{Body, Event, Gpu, Missed};
use types::Change;

/// Two readings of one process' start agree to a clock tick; further apart they are of two processes.
const SAME_START_NS: u64 = 50_000_000;

/// A function that the user named as a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSymbol {
    pub name: Arc<str>,
    /// It never returns.
    pub entry_only: bool,
}

/// All processes, in order of first sight.
#[derive(Debug, Default)]
pub struct Ledger {
    processes: Vec<Process>,
    /// The process that has a pid now, or had it last.
    current: FxHashMap<u32, usize>,
    op_names: FxHashMap<u64, Arc<str>>,
    user_symbols: FxHashMap<u16, UserSymbol>,
    stacks: Stacks,
    lost: BTreeMap<Arc<str>, u64>,
    events: u64,
    late: u64,
    /// No event tells of mappings.
    polled: bool,
}

impl Ledger {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The process that has this pid now, or had it last.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(*self.current.get(&pid)?)
    }

    /// Every process seen, in order of first sight. A pid used again is another process.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    #[must_use]
    pub fn op_name(&self, op: u64) -> Option<&Arc<str>> {
        self.op_names.get(&op)
    }

    #[must_use]
    pub fn user_symbol(&self, number: u16) -> Option<&UserSymbol> {
        self.user_symbols.get(&number)
    }

    /// Every stack that was heard of.
    #[must_use]
    pub const fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// What was lost on the way here, by kind.
    #[must_use]
    pub const fn lost(&self) -> &BTreeMap<Arc<str>, u64> {
        &self.lost
    }

    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Events of processes that had ended; they changed nothing.
    #[must_use]
    pub const fn late_events(&self) -> u64 {
        self.late
    }

    /// Forgets processes that ended before this time, for a ledger that is kept for days.
    pub fn forget_ended(&mut self, before: u64) {
        self.processes.retain(|p| p.ended.is_none_or(|e| e.at >= before));
        self.current = self.processes.iter().enumerate().map(|(i, p)| (p.pid, i)).collect();
    }

    /// Takes one event in. What it changed is added to `changes`, about the process `event.pid`.
    pub fn apply(&mut self, event: &Event, changes: &mut Vec<Change>) {
        self.events += 1;
        if let Body::ChunkAlloc { bytes, .. } | Body::HeapAlloc { bytes, .. } = event.body {
            self.stacks.count(bytes, event.stack);
        }
        if let Body::Gpu(Gpu::Taken(taken)) = &event.body {
            self.stacks.count(taken.bytes, event.stack);
        }
        match &event.body {
            Body::OpName { op, name } => {
                self.op_names.insert(*op, name.clone());
            }
            Body::Stack(stack) => self.stacks.add(stack),
            Body::CodeFile(file) => self.stacks.add_file(file),
            Body::PythonPlace(place) => self.stacks.add_python(place),
            Body::UserSymbol { number, name, entry_only } => {
                self.user_symbols.insert(*number, UserSymbol { name: name.clone(), entry_only: *entry_only });
            }
            Body::Lost { what, count } => {
                let known = self.lost.entry(what.clone()).or_default();
                *known = (*known).max(*count);
            }
            Body::TraceStart => {}
            Body::Polled => self.polled = true,
            Body::TraceEnd => changes.push(Change::TraceEnd),
            Body::Fork { child, shares_memory } => self.fork(event, *child, *shares_memory),
            _ => self.apply_to_process(event, changes),
        }
    }

    fn apply_to_process(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let Some(process) = self.locate(event).and_then(|i| self.processes.get_mut(i)) else {
            self.late += 1;
            return;
        };
        if !matches!(
            event.body,
            Body::Process(_)
                | Body::Library(_)
                | Body::Heap(_)
                | Body::Holders(_)
                | Body::Snapshot(_)
                | Body::Mark { .. }
                | Body::Missed { .. }
        ) {
            process.events += 1;
        }
        process.polled = self.polled;
        match process.shares_with {
            Some(parent) if of_memory(&event.body) => match self.owner_of_memory(parent) {
                Some(owner) => owner.apply_memory(event),
                None => self.late += 1,
            },
            _ => process.apply(event, changes),
        }
    }

    /// Follows a chain of `vfork`s to the process whose memory they all run in.
    fn owner_of_memory(&mut self, pid: u32) -> Option<&mut Process> {
        let mut i = *self.current.get(&pid)?;
        // Each step leads to an older process; a damaged stream must not make it a circle.
        for _ in 0..8 {
            match self.processes.get(i)?.shares_with {
                Some(next) => i = *self.current.get(&next)?,
                None => break,
            }
        }
        self.processes.get_mut(i).filter(|p| p.alive() && p.shares_with.is_none())
    }

    fn locate(&mut self, event: &Event) -> Option<usize> {
        if let Some(&i) = self.current.get(&event.pid)
            && let Some(process) = self.processes.get_mut(i)
        {
            if process.alive() {
                if !another(process, &event.body) {
                    return Some(i);
                }
                process.anomalies.lost_ends += 1;
                process.end(event.at, None, &mut Vec::new());
            } else if !begins(&event.body) {
                return None;
            }
        }
        Some(self.add(event.pid, event.at))
    }

    fn add(&mut self, pid: u32, at: u64) -> usize {
        self.processes.push(Process::new(pid, at));
        self.current.insert(pid, self.processes.len() - 1);
        self.processes.len() - 1
    }

    fn fork(&mut self, event: &Event, child: u32, shares_memory: bool) {
        let Some(parent) = self.locate(event) else {
            self.late += 1;
            return;
        };
        if child == event.pid {
            return;
        }
        let known = self.current.get(&child).copied().filter(|&i| self.processes.get(i).is_some_and(Process::alive));
        let child = match known {
            // Somebody told of the child before the fork was told: it is the same one, unless it is older for sure.
            Some(i)
                if self.processes.get(i).is_some_and(|p| p.forked_from.is_none() && p.execs == 0 && !p.attached()) =>
            {
                i
            }
            Some(i) => {
                if let Some(old) = self.processes.get_mut(i) {
                    old.anomalies.lost_ends += 1;
                    old.end(event.at, None, &mut Vec::new());
                }
                self.add(child, event.at)
            }
            None => self.add(child, event.at),
        };
        let mut forked = std::mem::take(&mut self.processes[child]);
        if let Some(parent) = self.processes.get(parent) {
            forked.forked(parent, event.tid, event.at, shares_memory);
        }
        self.processes[child] = forked;
        if let Some(parent) = self.processes.get_mut(parent) {
            parent.events += 1;
        }
    }
}

/// Whether the event says that its pid is another process than the one known.
fn another(process: &Process, body: &Body) -> bool {
    let Body::Process(info) = body else { return false };
    process.identity.info.as_ref().is_some_and(|known| {
        known.started_at != 0 && info.started_at != 0 && known.started_at.abs_diff(info.started_at) > SAME_START_NS
    })
}

/// Whether a process whose end was seen can be followed by this event: only another one with its pid does such things.
const fn begins(body: &Body) -> bool {
    !matches!(
        body,
        Body::ChunkFree { .. }
            | Body::HeapFree { .. }
            | Body::Unmap { .. }
            | Body::Advise { .. }
            | Body::ThreadExit
            | Body::Ended { .. }
            | Body::Leave { .. }
            | Body::Heap(_)
            | Body::Holders(_)
            | Body::Snapshot(_)
            | Body::Mark { .. }
            | Body::UserLeave { .. }
            | Body::Missed { .. }
            | Body::Gpu(Gpu::GivenBack { .. } | Gpu::Unmapped { .. } | Gpu::ContextGone { .. } | Gpu::PoolGone { .. })
    )
}

const fn of_memory(body: &Body) -> bool {
    matches!(
        body,
        Body::ChunkAlloc { .. }
            | Body::ChunkFree { .. }
            | Body::HeapAlloc { .. }
            | Body::HeapFree { .. }
            | Body::Map { .. }
            | Body::Unmap { .. }
            | Body::Remap { .. }
            | Body::Brk { .. }
            | Body::Advise { .. }
            | Body::Gpu(_)
    ) || matches!(body, Body::Missed { what, .. } if !matches!(what, Missed::Call))
}
