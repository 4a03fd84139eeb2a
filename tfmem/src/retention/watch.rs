//! One process under analysis: its boundaries from the closing call to the filled-in record.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::devices;
use super::growth;
use super::holders::Holders;
use super::pools::{self, region_bytes};
use super::record::{Block, Leftover, Look, Pending, Record, Side, Subject, bounds, layers};
use super::scene::{self, Baseline, Claim, Scene, is_memory};
use super::survivors;
use super::timeline::Timeline;
use crate::event::Addr;
use crate::ledger::types::{Allocation, SessionId};
use crate::ledger::{Ledger, Process};
use crate::report::model::BoundaryKind;

/// An observation this long before a boundary still tells of it.
const NEAR: u64 = 1_000_000_000;
/// Boundaries that wait at once. A program that closes more within the grace time would make each close look at all
/// memory; the ones above are counted and left out.
const MAX_PENDING: usize = 256;
/// Boundaries kept of a process: the first ones and the last ones tell how it went.
const KEPT_FIRST: usize = 100;
const KEPT: usize = 500;
/// Closing calls under way about one subject. More means that their returns are not seen (a function left by
/// `longjmp` or an exception).
const MAX_CLOSING: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Boundaries whose closing call is under way, and boundaries whose grace time runs.
    pub closing: Vec<Pending>,
    pub pending: Vec<Pending>,
    pub records: Vec<Record>,
    pub omitted: u64,
    next_id: u64,
    pub baselines: BTreeMap<Addr, Baseline>,
    /// Eager contexts, and when they were made.
    pub contexts: FxHashMap<Addr, u64>,
    pub last_cleared: Option<u64>,
    /// Labels of the user's marks, and when the last one was set.
    pub marks: Vec<Arc<str>>,
    pub last_mark: Option<u64>,
    /// When each of the user's boundary symbols returned last.
    pub last_symbol: FxHashMap<u16, u64>,
    pub look: Option<Look>,
    /// A complete observation was compared with the ledger's mappings since the program began.
    pub compared: bool,
    pub timeline: Timeline,
    /// When descendants are looked for, once the process has ended.
    pub leftovers_due: Option<u64>,
}

/// What a judgement needs beside the process.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub ledger: &'a Ledger,
    pub process: &'a Process,
    pub trace_start: u64,
    pub min_bytes: u64,
    pub max_rows: usize,
}

impl Watch {
    /// A closing call began: what is there now is what it may give back.
    pub fn begins(&mut self, cx: Context, kind: BoundaryKind, subject: Subject, opened: u64, at: u64) {
        let blocks = match subject {
            Subject::Session(id) => blocks_of(cx.process, id),
            Subject::Worker(id) => blocks_where(cx.process, |a| scene::of_worker(cx.process, id, a)),
            _ => Vec::new(),
        };
        if let (BoundaryKind::SessionDeleted, Subject::Session(id)) = (kind, subject) {
            self.settle_close(cx.process, id);
        }
        let mut before = side(cx.process);
        if let Some(look) = self.look.as_ref().filter(|l| l.at <= at && at - l.at <= NEAR) {
            before.see(look);
        }
        let same = |p: &Pending| p.kind == kind && p.subject == subject;
        if self.closing.iter().filter(|p| same(p)).count() >= MAX_CLOSING
            && let Some(oldest) = self.closing.iter().position(same)
        {
            self.closing.remove(oldest);
        }
        self.closing.push(Pending {
            kind,
            subject,
            opened,
            began: at,
            at: 0,
            due: 0,
            before,
            blocks,
            given_back: None,
        });
    }

    /// The closing call returned. Says when the survivors are due.
    pub fn ended(&mut self, cx: Context, kind: BoundaryKind, subject: Subject, at: u64, grace: u64) -> Option<u64> {
        let found = self.closing.iter().rposition(|p| p.kind == kind && p.subject == subject);
        let mut pending = match found {
            Some(i) => self.closing.remove(i),
            None => return None,
        };
        self.mark(cx.process, at);
        if self.pending.len() >= MAX_PENDING {
            self.omitted += 1;
            return None;
        }
        pending.at = at;
        pending.due = at.saturating_add(grace);
        let due = pending.due;
        self.pending.push(pending);
        Some(due)
    }

    /// The closing call turned out to be part of another one.
    pub fn dismiss(&mut self, kind: BoundaryKind, subject: Subject) {
        if let Some(i) = self.closing.iter().rposition(|p| p.kind == kind && p.subject == subject) {
            self.closing.remove(i);
        }
    }

    /// What looked like the end of the subject was not.
    pub fn revoke(&mut self, kind: BoundaryKind, subject: Subject) {
        self.dismiss(kind, subject);
        self.pending.retain(|p| (p.kind, p.subject) != (kind, subject));
    }

    /// A boundary is a mark on the timeline, and the first one that sees a pool is where its reuse is counted from.
    fn mark(&mut self, process: &Process, at: u64) {
        for (&addr, pool) in &process.pools {
            self.baselines.entry(addr).or_insert_with(|| Baseline {
                at,
                handed_out_bytes: pool.handed_out_bytes,
                region_bytes: region_bytes(pool),
            });
        }
        self.timeline.boundary(at, in_use(process));
    }

    /// What a session's close gave back is settled when its delete begins: the delete gets what it gives back itself.
    fn settle_close(&mut self, process: &Process, id: SessionId) {
        for p in self.pending.iter_mut().chain(&mut self.closing) {
            if p.subject == Subject::Session(id) && p.given_back.is_none() {
                p.given_back = Some(gone(process, &p.blocks));
                p.blocks = Vec::new();
            }
        }
    }

    /// Judges the boundaries that are due, or all of them when the process or the trace ends.
    pub fn judge_due(&mut self, cx: Context, now: u64, all: bool) {
        let mut i = 0;
        while i < self.pending.len() {
            if all || self.pending[i].due <= now {
                let pending = self.pending.remove(i);
                self.judge(cx, &pending, now);
            } else {
                i += 1;
            }
        }
    }

    fn judge(&mut self, cx: Context, pending: &Pending, now: u64) {
        let given_back = pending.given_back.unwrap_or_else(|| gone(cx.process, &pending.blocks));
        self.next_id += 1;
        let mut record = self.record(cx, pending, now);
        record.given_back = given_back;
        self.keep(record);
    }

    fn record(&self, cx: Context, pending: &Pending, now: u64) -> Record {
        let scene = Scene {
            ledger: cx.ledger,
            process: cx.process,
            baselines: &self.baselines,
            kind: pending.kind,
            subject: pending.subject,
            opened: pending.opened,
            at: pending.at,
            after: now,
            trace_start: cx.trace_start,
            min_bytes: cx.min_bytes,
            max_rows: cx.max_rows,
            holders: Holders::at(cx.process, pending.at, matches!(pending.subject, Subject::Process)),
        };
        let holders_at = scene.holders.seen_at();
        let (rows, verdicts) = survivors::judge(&scene);
        Record {
            id: self.next_id,
            kind: pending.kind,
            subject: pending.subject,
            name: self.name(cx, pending.subject),
            opened: pending.opened,
            at: pending.at,
            after: now,
            before: pending.before.clone(),
            after_side: side(cx.process),
            pools: pools::rows(&scene),
            rows,
            verdicts,
            given_back: 0,
            leftovers: Vec::new(),
            alive: if scene.is_end() { Vec::new() } else { growth::alive(&scene) },
            heap: cx.process.identity.heap.filter(|_| scene.is_end()),
            awaits_look: true,
            holders_at,
        }
    }

    /// What the subject is called, where it has a name: a session's handle, a mark's label, a symbol.
    fn name(&self, cx: Context, subject: Subject) -> Option<Arc<str>> {
        match subject {
            Subject::Session(id) => cx.process.session(id)?.remote_handle.clone(),
            Subject::Worker(id) => cx.process.worker_sessions.find(id).map(|s| s.handle.clone()),
            Subject::Mark(i) => self.marks.get(i).cloned(),
            Subject::Symbol(number) => cx.ledger.user_symbol(number).map(|s| s.name.clone()),
            Subject::Context(_) | Subject::Server(_) | Subject::Process => None,
        }
    }

    /// The process or the trace ends: everything that waits is judged now, and what is alive is the last boundary's.
    pub fn ends(&mut self, cx: Context, kind: BoundaryKind, at: u64) {
        self.closing.clear();
        self.judge_due(cx, at, true);
        for record in &mut self.records {
            if !record.awaits_look {
                continue;
            }
            match self.look.as_ref().filter(|l| l.at > record.at) {
                Some(look) => record.see(look),
                None => record.give_up_look(),
            }
        }
        self.mark(cx.process, at);
        self.timeline.end(at);
        self.next_id += 1;
        let pending = Pending {
            kind,
            subject: Subject::Process,
            opened: cx.process.born,
            began: at,
            at,
            due: at,
            before: side(cx.process),
            blocks: Vec::new(),
            given_back: None,
        };
        let mut record = self.record(cx, &pending, at);
        record.before = record.after_side.clone();
        // One taken at the very end is exact; an older one still tells, if it is not too old.
        match self.look.as_ref().filter(|l| l.snapshot.at_exit || at.saturating_sub(l.at) <= NEAR) {
            Some(look) => record.see(look),
            // The look at the very end can come in late.
            None if kind == BoundaryKind::ProcessExit => {}
            None => record.give_up_look(),
        }
        self.keep(record);
    }

    /// Keeps the first boundaries and the last ones.
    fn keep(&mut self, record: Record) {
        self.records.push(record);
        if self.records.len() > KEPT {
            self.records.remove(KEPT_FIRST);
            self.omitted += 1;
        }
    }

    /// The process was looked at: each boundary takes what tells of it.
    pub fn sees(&mut self, process: &Process, look: Look) {
        let layers = side(process).layers;
        for p in &mut self.closing {
            // Taken while the closing call is under way, it tells of "before" as long as nothing was given back yet.
            if p.before.layers == layers && p.before.observed.is_none_or(|seen| seen < p.began) {
                p.before.see(&look);
            }
        }
        for record in self.records.iter_mut().filter(|r| r.awaits_look && r.after <= look.at) {
            record.see(&look);
            record.heap = process.identity.heap.filter(|(seen, _)| *seen == look.at);
        }
        self.timeline.look(look.at, look.rss, look.bands, in_use(process));
        // What was seen at the very end says more than totals that were read between it and the end.
        if !self.look.as_ref().is_some_and(|l| l.snapshot.at_exit) {
            self.look = Some(look);
        }
    }

    /// A look at the very end of the process that came in after its end did.
    pub fn sees_late(&mut self, look: Look) {
        if let Some(record) = self.records.last_mut().filter(|r| r.awaits_look) {
            record.see(&look);
            self.look = Some(look);
        }
    }

    /// Descendants alive now are what the process left behind.
    pub fn leaves(&mut self, leftovers: Vec<Leftover>, now: u64) {
        self.leftovers_due = None;
        let Some(record) = self.records.last_mut().filter(|r| r.kind == BoundaryKind::ProcessExit) else { return };
        record.after = now;
        record.leftovers = leftovers;
        if record.awaits_look {
            record.give_up_look();
        }
    }

    /// Another program runs in the process: observations of the old one say nothing of it.
    pub fn execs(&mut self) {
        self.compared = false;
        self.look = None;
        self.baselines.clear();
        self.contexts.clear();
    }
}

/// Whether TensorFlow's probes are in the process.
pub(super) fn watched(process: &Process) -> bool {
    process.identity.libraries.iter().any(|l| l.framework == "tensorflow")
}

/// Whether TensorFlow's probes are in the process, those on what allocates left out.
pub(super) fn is_unfollowed(process: &Process) -> bool {
    let mut libraries = process.identity.libraries.iter().filter(|l| l.framework == "tensorflow").peekable();
    libraries.peek().is_some() && !libraries.any(|l| l.is_followed())
}

/// Whether they tell of allocations, too.
pub(super) fn followed(process: &Process) -> bool {
    watched(process) && !is_unfollowed(process)
}

fn side(process: &Process) -> Side {
    Side::of(layers(process, followed(process)), bounds(process), devices::devices(process))
}

pub(super) fn in_use(process: &Process) -> u64 {
    let totals = process.totals();
    totals.chunk_bytes.saturating_add(totals.heap_bytes).saturating_add(process.gpu.outside_pools())
}

/// The session's memory as its closing call finds it.
fn blocks_of(process: &Process, id: SessionId) -> Vec<Block> {
    let Some(claim) = Claim::of(&process.sessions, id) else { return Vec::new() };
    blocks_where(process, |a| claim.holds(a))
}

fn blocks_where(process: &Process, which: impl Fn(&Allocation) -> bool) -> Vec<Block> {
    process
        .allocations()
        .filter(|a| is_memory(a) && which(a))
        .map(|a| Block { layer: a.layer, addr: a.addr, born: a.born, bytes: a.bytes })
        .collect()
}

/// Bytes of these blocks that are not there any more.
fn gone(process: &Process, blocks: &[Block]) -> u64 {
    let alive = |b: &&Block| process.allocation(b.layer, b.addr).is_some_and(|a| a.born == b.born);
    blocks.iter().filter(|b| !alive(b)).map(|b| b.bytes).fold(0, u64::saturating_add)
}
