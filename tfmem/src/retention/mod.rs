//! Boundaries, survivors and verdicts: what outlived the moment it should have ended at, and why.
//!
//! Pure: events in, a [`Report`] out. What only the outside knows (host, cost, wall clock) is given to
//! [`Analysis::finish`].

mod assemble;
mod causes;
pub mod clock;
pub mod devices;
mod follow;
mod growth;
mod handles;
mod holders;
mod look;
mod now;
mod own_code;
pub mod place;
mod pools;
mod predictions;
mod record;
mod released;
pub mod residency;
mod scene;
pub mod stacks;
mod survivors;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a script that is wrong is a test that is wrong")]
pub(crate) mod testing;
#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests;
mod timeline;
mod watch;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;

pub use clock::WallClock;
pub use now::{Judged, Now};

use crate::event::{Body, Call, Event};
use crate::ledger::types::Change;
use crate::ledger::{Ledger, Process};
use crate::report::model::{BoundaryKind, Cost, Host, Report};
use record::Leftover;
use watch::{Context, Watch};

/// What the user may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long after a boundary memory may take to come back.
    pub grace_ns: u64,
    /// Survivors in smaller groups are summed up in one row.
    pub min_bytes: u64,
    /// The same goes for groups beyond so many.
    pub max_rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { grace_ns: 2_000_000_000, min_bytes: 1 << 20, max_rows: 200 }
    }
}

/// What the events do not say.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub host: Host,
    pub capabilities: BTreeMap<String, String>,
    pub cost: Option<Cost>,
    pub clock: WallClock,
    /// Losses that no event tells of, by kind: what did not get into a recording, or out of one.
    pub lost: BTreeMap<String, u64>,
}

/// The stage: fed with events in order of time, it keeps the ledger and judges each boundary when it is due.
#[derive(Debug, Default)]
pub struct Analysis {
    options: Options,
    ledger: Ledger,
    /// One for each process of the ledger, in its order; likewise the parents that were seen to fork them.
    watches: Vec<Watch>,
    parents: Vec<Option<usize>>,
    /// The process that has a pid now, or had it last.
    current: FxHashMap<u32, usize>,
    live: BTreeSet<usize>,
    /// Processes by the time at which something of theirs is due.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    changes: Vec<Change>,
    start: Option<u64>,
    last: u64,
    over: bool,
}

impl Analysis {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    #[must_use]
    pub const fn options(&self) -> Options {
        self.options
    }

    /// The ledger as it is now, for live views.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// When survivors are due next: a look at the process soon after that tells how much of them is resident.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|&Reverse((due, _))| due)
    }

    /// Takes one event in.
    pub fn feed(&mut self, event: &Event) {
        if self.start.is_none() || event.body == Body::TraceStart {
            self.start = Some(event.at);
        }
        self.last = self.last.max(event.at);
        self.run_due(event.at);
        let known = match &event.body {
            Body::Ended { .. } => {
                self.process_ends(event.pid, event.at);
                None
            }
            Body::Snapshot(_) => self.known_ranges(event.pid),
            _ => None,
        };
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        self.ledger.apply(event, &mut changes);
        self.meet(event);
        self.note(event, &known);
        for change in &changes {
            self.follow(event, change);
        }
        self.changes = changes;
        if event.body == Body::TraceEnd {
            self.end(event.at);
        }
    }

    /// Ends the analysis, if the stream did not, and makes the report.
    #[must_use]
    pub fn finish(mut self, facts: Facts) -> Report {
        self.end(self.last);
        assemble::report(&self, facts)
    }

    fn context(&self, i: usize) -> Option<Context<'_>> {
        Some(Context {
            ledger: &self.ledger,
            process: self.ledger.processes().nth(i)?,
            trace_start: self.start.unwrap_or(0),
            min_bytes: self.options.min_bytes,
            max_rows: self.options.max_rows,
        })
    }

    /// Runs `f` on a process and its watch.
    fn with<R>(&mut self, i: usize, f: impl FnOnce(&mut Watch, Context) -> R) -> Option<R> {
        let mut watch = std::mem::take(self.watches.get_mut(i)?);
        let result = self.context(i).map(|cx| f(&mut watch, cx));
        if let Some(slot) = self.watches.get_mut(i) {
            *slot = watch;
        }
        result
    }

    /// What is due before this time: memory that comes back later than that is a survivor.
    fn run_due(&mut self, now: u64) {
        while let Some(&Reverse((due, i))) = self.due.peek()
            && due <= now
        {
            self.due.pop();
            self.with(i, |watch, cx| watch.judge_due(cx, due, false));
            if self.watches.get(i).is_some_and(|w| w.leftovers_due == Some(due)) {
                self.look_for_leftovers(i, due);
            }
        }
    }

    /// The ledger met new processes in this event.
    fn meet(&mut self, event: &Event) {
        let born: Vec<(u32, u64)> = self.ledger.processes().skip(self.watches.len()).map(|p| (p.pid, p.born)).collect();
        for (pid, born) in born {
            let i = self.watches.len();
            let mut watch = Watch::default();
            watch.timeline.start(born.min(event.at));
            self.watches.push(watch);
            self.parents.push(None);
            self.live.insert(i);
            // The pid's last owner ended without a word.
            if let Some(old) = self.current.insert(pid, i) {
                self.index_ends(old, event.at);
            }
        }
        let parent = match &event.body {
            Body::Fork { child, .. } => self.current.get(child).copied().zip(self.current.get(&event.pid).copied()),
            Body::Process(info) => self.current.get(&event.pid).copied().zip(self.current.get(&info.ppid).copied()),
            _ => None,
        };
        if let Some((child, parent)) = parent
            && child != parent
            && let Some(slot) = self.parents.get_mut(child)
        {
            slot.get_or_insert(parent);
        }
    }

    /// Ranges the ledger knew before an observation corrects it.
    fn known_ranges(&self, pid: u32) -> look::Known {
        let i = *self.current.get(&pid)?;
        let process = self.ledger.processes().nth(i).filter(|p| !p.polled())?;
        self.watches.get(i)?.compared.then(|| process.memory_map().iter().map(|r| (r.start, r.len)).collect())
    }

    /// What the changes do not tell.
    fn note(&mut self, event: &Event, known: &look::Known) {
        // Most events are allocations: nothing to note, nothing to look up.
        if !matches!(
            event.body,
            Body::Snapshot(_)
                | Body::Exec
                | Body::Leave { call: Call::NewContext, .. }
                | Body::Mark { .. }
                | Body::UserEnter { .. }
                | Body::UserLeave { .. }
        ) {
            return;
        }
        let Some(&i) = self.current.get(&event.pid) else { return };
        match &event.body {
            Body::Snapshot(snapshot) if self.live.contains(&i) || snapshot.at_exit => {
                let live = self.live.contains(&i);
                let look = self.context(i).map(|cx| look::look(cx.process, event.at, snapshot, known));
                if let Some(look) = look {
                    self.with(i, |watch, cx| if live { watch.sees(cx.process, look) } else { watch.sees_late(look) });
                }
                if let Some(watch) = self.watches.get_mut(i) {
                    watch.compared |= !snapshot.mappings.is_empty();
                }
                self.leftover_seen(i, event.at, look::rss(snapshot));
            }
            Body::Exec => {
                self.with(i, |watch, _| watch.execs());
            }
            Body::Leave { call: Call::NewContext, ret } if *ret != 0 => {
                if let Some(watch) = self.watches.get_mut(i) {
                    watch.contexts.insert(*ret, event.at);
                }
            }
            _ => self.users_boundary(i, event),
        }
    }

    fn process_ends(&mut self, pid: u32, at: u64) {
        if let Some(&i) = self.current.get(&pid) {
            self.index_ends(i, at);
        }
    }

    fn index_ends(&mut self, i: usize, at: u64) {
        if !self.live.remove(&i) {
            return;
        }
        let due = at.saturating_add(self.options.grace_ns);
        self.with(i, |watch, cx| {
            watch.ends(cx, BoundaryKind::ProcessExit, at);
            watch.leftovers_due = Some(due);
        });
        self.due.push(Reverse((due, i)));
    }

    /// Descendants of an ended process that are alive now.
    fn look_for_leftovers(&mut self, i: usize, now: u64) {
        let Some(ended) = self.ledger.processes().nth(i).and_then(|p| p.ended).map(|e| e.at) else { return };
        let left: Vec<Leftover> = self
            .live
            .iter()
            .filter(|&&l| self.ancestors(l).any(|a| a == i))
            .filter_map(|&l| {
                let process = self.ledger.processes().nth(l)?;
                let seen = last_rss(process).filter(|&(at, _)| at >= ended);
                Some(Leftover { index: l, pid: process.pid, name: comm(process), seen })
            })
            .collect();
        self.with(i, |watch, _| watch.leaves(left, now));
    }

    fn leftover_seen(&mut self, index: usize, at: u64, rss: u64) {
        let ancestors: Vec<usize> = self.ancestors(index).filter(|a| !self.live.contains(a)).collect();
        for a in ancestors {
            let last = self.watches.get_mut(a).and_then(|w| w.records.last_mut());
            for left in last.into_iter().flat_map(|r| &mut r.leftovers).filter(|l| l.index == index) {
                left.seen.get_or_insert((at, rss));
            }
        }
    }

    fn ancestors(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        // A damaged stream must not send this round in circles.
        std::iter::successors(Some(i), |&i| self.parents.get(i).copied().flatten()).skip(1).take(64)
    }

    /// The trace is over: whatever waits is judged now, and each live process gets its last boundary.
    fn end(&mut self, at: u64) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        for i in 0..self.watches.len() {
            if self.watches.get(i).is_some_and(|w| w.leftovers_due.is_some()) {
                self.look_for_leftovers(i, at);
            }
        }
        for i in self.live.clone() {
            self.with(i, |watch, cx| watch.ends(cx, BoundaryKind::TraceEnd, at));
        }
    }
}

/// When resident bytes were read last, and what they were.
fn last_rss(process: &Process) -> Option<(u64, u64)> {
    process.identity.snapshot.as_ref().map(|(at, s)| (*at, look::rss(s)))
}

fn comm(process: &Process) -> String {
    process.identity.info.as_ref().map_or_else(String::new, |i| i.comm.clone())
}
