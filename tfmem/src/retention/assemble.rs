//! The report out of what was recorded. Here boot-clock times become dates.

use std::collections::BTreeMap;

use super::record::{Leftover, Record, Side, Subject};
use super::watch::{Watch, followed, watched};
use super::{Analysis, Facts, WallClock, causes, comm, growth, last_rss, predictions, released, stacks};
use crate::event::{ExitStatus, LibraryInfo};
use crate::ledger::Process;
use crate::ledger::types::{self, Session};
use crate::report::model::{
    self, Boundary, BoundaryKind, Coverage, EndedSession, Framework, HandleCount, Handles, Now, OpenSession, Report,
    ReportOptions, Sessions, Tfmem, Verdict,
};
use crate::report::units::plain;

/// Sessions that ended, listed one by one.
const MAX_ENDED: usize = 200;
/// Sessions that are open, listed one by one.
const MAX_OPEN: usize = 200;

pub(super) fn report(analysis: &Analysis, facts: Facts) -> Report {
    let clock = facts.clock;
    let start = analysis.start.unwrap_or(0);
    let processes: Vec<model::Process> = analysis
        .ledger
        .processes()
        .zip(&analysis.watches)
        .enumerate()
        .map(|(i, (process, watch))| Builder { analysis, process, watch, i, clock, start }.process())
        .collect();
    Report {
        schema: model::SCHEMA.to_owned(),
        tfmem: Tfmem { version: env!("CARGO_PKG_VERSION").to_owned() },
        host: facts.host,
        capabilities: facts.capabilities,
        options: ReportOptions {
            grace_ms: analysis.options.grace_ns / 1_000_000,
            min_bytes: analysis.options.min_bytes,
        },
        started_at: clock.rfc3339(start),
        started_ns: start,
        ended_at: clock.rfc3339(analysis.last),
        stacks: stacks::named(analysis.ledger.stacks(), &processes),
        processes,
        losses: losses(analysis, facts.lost),
        coverage: coverage(analysis),
        events: analysis.ledger.events(),
        cost: facts.cost,
    }
}

/// Kinds that are always listed come first; the sources' own counts and what did not add up are beside them.
fn losses(analysis: &Analysis, lost: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut out: BTreeMap<String, u64> =
        ["events_dropped", "stacks_truncated", "frames_unresolved", "allocations_unpaired"]
            .into_iter()
            .map(|kind| (kind.to_owned(), 0))
            .collect();
    for (kind, &count) in analysis.ledger.lost() {
        out.insert(kind.to_string(), count);
    }
    let mut add = |kind: &str, n: u64| {
        let sum = out.entry(kind.to_owned()).or_default();
        *sum = sum.saturating_add(n);
    };
    for process in analysis.ledger.processes() {
        let a = &process.anomalies;
        add("frees_unpaired", a.unpaired_frees);
        add("frees_from_before_attach", a.expected_frees);
        add("frees_of_inherited_memory", a.inherited_frees);
        add("chunks_orphaned", a.orphaned_chunks);
        add("allocations_reused_alive", a.reused_alive);
        add("blocks_found_gone", a.found_gone);
        add("calls_unpaired", a.unpaired_calls);
        add("unknown_handles", a.unknown_handles);
        add("process_ends_lost", a.lost_ends);
        add("mapping_drift_bytes", a.mapping_drift_bytes);
        add("mapping_untold_bytes", a.mapping_untold_bytes);
    }
    add("events_late", analysis.ledger.late_events());
    for watch in &analysis.watches {
        add("boundaries_omitted", watch.omitted);
    }
    for (kind, count) in lost {
        add(&kind, count);
    }
    out
}

fn coverage(analysis: &Analysis) -> Coverage {
    let looks = analysis.watches.iter().filter_map(|w| w.look.as_ref());
    let stacks = stacks::coverage(analysis.ledger.stacks());
    looks.fold(Coverage { stacks, ..Coverage::default() }, |sum, look| {
        // Where the mappings were not read only files are known to be explained.
        let explained = match look.bands.unexplained {
            Some(unexplained) => look.rss.saturating_sub(unexplained),
            None => look.bands.files.unwrap_or(0),
        };
        Coverage {
            bytes_seen: sum.bytes_seen.saturating_add(look.rss),
            bytes_explained: sum.bytes_explained.saturating_add(explained),
            stacks: sum.stacks,
        }
    })
}

struct Builder<'a> {
    analysis: &'a Analysis,
    process: &'a Process,
    watch: &'a Watch,
    i: usize,
    clock: WallClock,
    start: u64,
}

impl Builder<'_> {
    fn process(&self) -> model::Process {
        let p = self.process;
        let info = p.identity.info.as_deref();
        let end = p.ended.map_or(self.analysis.last, |e| e.at);
        let attached = p.attached();
        let born = info.map(|i| i.started_at).filter(|&at| at != 0).unwrap_or(p.born);
        let seen_from = if attached { self.start.max(born) } else { born };
        let boundaries: Vec<Boundary> = self.watch.records.iter().map(|r| self.boundary(r)).collect();
        model::Process {
            pid: p.pid,
            ppid: p.ppid,
            comm: comm(p),
            cmdline: info.map_or_else(Vec::new, |i| i.cmdline.clone()),
            exe: info.map_or_else(String::new, |i| i.exe.clone()),
            started_at: self.clock.rfc3339(born),
            exited_at: p.ended.map(|e| self.clock.rfc3339(e.at)),
            exit: p.ended.and_then(|e| e.status).map(|status| match status {
                ExitStatus::Code(code) => format!("exit {code}"),
                ExitStatus::Signal(signal) => format!("signal {signal}"),
            }),
            cgroup: info.and_then(|i| i.cgroup.clone()),
            job: info.and_then(|i| i.job.as_ref()).map(|j| model::Job { name: j.name.clone(), task: j.task }),
            attached,
            forked: p.forked_from.is_some() && p.execs == 0,
            seen_ms: end.saturating_sub(seen_from) / 1_000_000,
            frameworks: p.identity.libraries.iter().map(|l| framework(l)).collect(),
            now: self.now(),
            handles: self.handles(),
            timeline: self.watch.timeline.report(),
            verdicts: self.verdicts(),
            released: released::released(&self.watch.records, seen_from, self.analysis.options.min_bytes, self.clock),
            growth: growth::growth(&self.watch.records, &self.analysis.ledger, self.analysis.options.min_bytes),
            predictions: predictions::checked(&self.watch.records, self.analysis.options.min_bytes),
            boundaries,
            boundaries_omitted: self.watch.omitted,
        }
    }

    fn now(&self) -> Now {
        let rss = last_rss(self.process);
        Now {
            observed_at: rss.map(|(at, _)| self.clock.rfc3339(at)),
            rss_bytes: rss.map(|(_, bytes)| bytes),
            layers: super::record::layers(self.process, followed(self.process)),
            bounds: super::record::bounds(self.process),
            devices: super::devices::devices(self.process),
        }
    }

    fn boundary(&self, r: &Record) -> Boundary {
        let mut verdicts = r.verdicts.clone();
        let left: Vec<Leftover> = r.leftovers.iter().map(|l| self.leftover(l)).collect();
        verdicts.extend(causes::leftover::verdict(&left.iter().collect::<Vec<_>>(), r.at, r.after));
        causes::order(&mut verdicts);
        Boundary {
            id: r.id,
            kind: r.kind,
            label: label(r),
            handle: handle(r),
            opened_at: self.clock.rfc3339(r.opened),
            at: self.clock.rfc3339(r.at),
            after_at: self.clock.rfc3339(r.after),
            grace_ms: r.after.saturating_sub(r.at) / 1_000_000,
            holders_at: r.holders_at.map(|at| self.clock.rfc3339(at)),
            before: self.side(&r.before),
            after: self.side(&r.after_side),
            pools: r.pools.iter().map(|p| p.pool.clone()).collect(),
            survivors: r.rows.iter().map(|row| row.survivor.clone()).collect(),
            verdicts,
        }
    }

    fn side(&self, side: &Side) -> model::Side {
        model::Side {
            observed_at: side.observed.map(|at| self.clock.rfc3339(at)),
            rss_bytes: side.rss,
            layers: side.layers,
            bounds: side.bounds.clone(),
            bands: side.bands,
            devices: side.devices.clone(),
        }
    }

    /// A leftover with the best figure there is: read after it was found, else the last one.
    fn leftover(&self, l: &Leftover) -> Leftover {
        let last = || self.analysis.ledger.processes().nth(l.index).and_then(last_rss);
        Leftover { seen: l.seen.or_else(last), ..l.clone() }
    }

    /// The whole trace's verdicts are those of the end: what was freed meanwhile is blamed on nobody.
    fn verdicts(&self) -> Vec<Verdict> {
        let Some(last) = self.watch.records.last().filter(|r| is_end(r.kind)) else { return Vec::new() };
        let mut verdicts = last.verdicts.clone();
        let left: Vec<Leftover> =
            last.leftovers.iter().filter(|l| self.still_mine(l)).map(|l| self.leftover(l)).collect();
        verdicts.extend(causes::leftover::verdict(&left.iter().collect::<Vec<_>>(), last.at, last.after));
        causes::order(&mut verdicts);
        for v in &mut verdicts {
            v.refs.boundary = Some(last.id);
        }
        verdicts
    }

    /// A leftover that ended later is none any more, and one process answers for it: the nearest that ended.
    fn still_mine(&self, l: &Leftover) -> bool {
        self.analysis.live.contains(&l.index)
            && self.analysis.ancestors(l.index).find(|a| !self.analysis.live.contains(a)) == Some(self.i)
    }

    fn handles(&self) -> Handles {
        let p = self.process;
        let watched = watched(p);
        let count = |c: &types::HandleCount| {
            let seen = watched || c.opened > 0 || c.closed > 0;
            HandleCount { opened: seen.then_some(c.opened), closed: seen.then_some(c.closed) }
        };
        let mut handles = Handles {
            sessions: self.sessions(),
            graphs: count(&p.graphs),
            contexts: count(&p.contexts),
            functions: count(&p.functions),
            servers: count(&p.servers.counts),
            worker_sessions: count(&p.worker_sessions.counts),
            master_sessions: count(&p.masters.counts),
            ..Handles::default()
        };
        handles.bounds = super::handles::bounds(p, &handles);
        handles
    }

    fn sessions(&self) -> Sessions {
        let counts = self.process.session_counts();
        let end = self.process.ended.map_or(self.analysis.last, |e| e.at);
        let (ended, open): (Vec<&Session>, Vec<&Session>) =
            self.process.sessions.iter().partition(|s| super::scene::ended(s).is_some());
        let mut held: BTreeMap<u64, u64> = BTreeMap::new();
        if !open.is_empty() {
            for a in self.process.allocations().filter(super::scene::is_memory) {
                if let Some(owner) = a.owner {
                    let sum = held.entry(owner).or_default();
                    *sum = sum.saturating_add(a.bytes);
                }
            }
        }
        let open = open.iter().take(MAX_OPEN).map(|s| OpenSession {
            id: s.id,
            opened_at: self.clock.rfc3339(s.opened),
            handle: s.remote_handle.as_deref().map(str::to_owned),
            age_ms: end.saturating_sub(s.opened) / 1_000_000,
            bytes: held.get(&s.id).copied().unwrap_or(0),
            place: None,
        });
        let ended = ended.iter().rev().take(MAX_ENDED).rev().map(|s| EndedSession {
            id: s.id,
            handle: s.remote_handle.as_deref().map(str::to_owned),
            opened_at: self.clock.rfc3339(s.opened),
            closed_at: s.closed.map(|at| self.clock.rfc3339(at)),
            deleted_at: s.deleted.map(|at| self.clock.rfc3339(at)),
        });
        Sessions {
            opened: counts.opened,
            closed: counts.closed,
            deleted: counts.deleted,
            open: open.collect(),
            ended: ended.collect(),
        }
    }
}

fn framework(l: &LibraryInfo) -> Framework {
    Framework {
        name: l.framework.clone(),
        version: l.version.clone(),
        library: l.path.clone(),
        build_id: l.build_id.clone(),
        probes: u64::from(l.probes),
        blind: l.blind.clone(),
    }
}

const fn is_end(kind: BoundaryKind) -> bool {
    matches!(kind, BoundaryKind::ProcessExit | BoundaryKind::TraceEnd)
}

/// What ties a session's boundaries in all processes that took part in it.
fn handle(r: &Record) -> Option<String> {
    let name = r.name.as_deref().filter(|_| matches!(r.subject, Subject::Session(_) | Subject::Worker(_)));
    name.map(|name| plain(name, 64))
}

pub(super) fn label(r: &Record) -> String {
    let name = || r.name.as_deref().map_or_else(|| "?".to_owned(), |name| plain(name, 200));
    match (r.kind, r.subject) {
        (BoundaryKind::SessionClosed, Subject::Session(id)) => format!("session {id} closed"),
        (BoundaryKind::SessionDeleted, Subject::Session(id)) => format!("session {id} deleted"),
        (BoundaryKind::WorkerSessionDeleted, _) => format!("worker session {} ended", name()),
        (BoundaryKind::ServerStopped, Subject::Server(id)) => format!("server {id} told to stop"),
        (BoundaryKind::Mark, _) => name(),
        (BoundaryKind::Symbol, _) => name(),
        (BoundaryKind::ContextDeleted, _) => "eager context deleted".to_owned(),
        (BoundaryKind::CachesCleared, _) => "eager context's caches cleared".to_owned(),
        (BoundaryKind::ProcessExit, _) => "process ended".to_owned(),
        (BoundaryKind::TraceEnd, _) => "trace ended".to_owned(),
        (kind, _) => format!("{kind:?}"),
    }
}
