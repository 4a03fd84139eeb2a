//! A process and its descendants: one ledger, as what a process leaves behind lies in its children.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    member::{Member, News, hide_secrets},
    state,
};
use crate::{
    event::{Body, Event},
    report::model::{Layers, Report},
    retention::{Analysis, Facts, Now, Options},
};

/// Processes in one ledger. A parent that makes one child after the other would fill any memory: its ledger begins anew.
const MOST: usize = 2000;

/// Which of the report's capabilities says how much was traced, and what it says of rare events.
pub const TRACING: &str = "tracing";
pub const RARE: &str = "rare events";

pub struct Tree {
    pub analysis: Analysis,
    pub members: BTreeMap<u32, Member>,
    alive: BTreeSet<u32>,
    /// When the last of them ended.
    pub ended: Option<u64>,
}

impl Tree {
    pub fn new(options: Options, at: u64) -> Self {
        Self { analysis: analysis(options, at), members: BTreeMap::new(), alive: BTreeSet::new(), ended: None }
    }

    pub fn feed(&mut self, event: &Event) {
        match &event.body {
            Body::Fork { child, .. } => {
                self.alive.insert(*child);
                self.alive.insert(event.pid);
                self.ended = None;
            }
            Body::Ended { .. } => {
                self.alive.remove(&event.pid);
                if self.alive.is_empty() {
                    self.ended = Some(event.at);
                }
            }
            Body::Process(_) => {
                self.alive.insert(event.pid);
                self.ended = None;
            }
            _ => {}
        }
        self.analysis.feed(event);
    }

    pub fn is_too_large(&self) -> bool {
        self.analysis.size() > MOST
    }

    /// Begins anew with what is known of those that live.
    pub fn restart(&mut self, options: Options, at: u64) {
        self.analysis = analysis(options, at);
        self.members.retain(|pid, _| self.alive.contains(pid));
        let mut events: Vec<Event> =
            self.members.values().flat_map(|member| member.kept.events().into_iter().cloned()).collect();
        events.sort_by_key(|event| event.at);
        for event in &events {
            self.analysis.feed(event);
        }
        for member in self.members.values_mut() {
            member.restarted();
        }
    }

    /// What is new of all its processes.
    pub fn news(&mut self, at: u64) -> Vec<(u32, News)> {
        self.analysis.pass(at);
        let mut all = Vec::new();
        for now in self.analysis.now() {
            let pid = now.process.pid;
            if let Some(member) = self.members.get_mut(&pid) {
                if let Some(full) = &mut member.full {
                    full.analysis.pass(at);
                }
                all.push((pid, member.news(&self.analysis, &now, at)));
            }
        }
        all
    }

    /// Everything ended a while ago.
    pub fn finish(mut self, facts: &Facts, at: u64) -> News {
        let mut all = News::default();
        let in_full: BTreeSet<u32> =
            self.members.iter().filter(|(_, member)| member.full.is_some()).map(|(pid, _)| *pid).collect();
        for (&pid, member) in &mut self.members {
            let news = member.finish(pid, facts.clone(), at);
            all.findings.extend(news.findings);
            all.traced.extend(news.traced);
        }
        let report = self.analysis.finish(facts.clone());
        for (&pid, member) in self.members.iter_mut().filter(|(pid, _)| !in_full.contains(pid)) {
            all.findings.extend(member.ended(&report, pid, at));
        }
        all
    }

    /// The report of all of them as it would be now; single blocks are not in it.
    pub fn report(&self, facts: Facts) -> Report {
        let mut report = self.analysis.report_so_far(facts);
        hide_secrets(&mut report);
        report.capabilities.insert(TRACING.to_owned(), RARE.to_owned());
        for process in &mut report.processes {
            // Nobody looked at these: zero would be a lie. Nor do the libraries lack what is not asked of them.
            unseen(&mut process.now.layers);
            for framework in process.frameworks.iter_mut().filter(|framework| framework.probes > 0) {
                framework.blind.clear();
            }
            for boundary in &mut process.boundaries {
                unseen(&mut boundary.before.layers);
                unseen(&mut boundary.after.layers);
            }
        }
        report
    }

    pub fn processes(&self, at: u64) -> impl Iterator<Item = state::Process> + '_ {
        self.analysis.now().filter(|now| now.watched).filter_map(move |now| {
            let member = self.members.get(&now.process.pid)?;
            Some(process(&now, member, at))
        })
    }
}

fn analysis(options: Options, at: u64) -> Analysis {
    let mut analysis = Analysis::new(options);
    analysis.feed(&Event::of(at, 0, 0, Body::TraceStart));
    analysis.feed(&Event::of(at, 0, 0, Body::Polled));
    analysis
}

const fn unseen(layers: &mut Layers) {
    (layers.pool_chunk, layers.pool_region, layers.heap) = (None, None, None);
}

fn process(now: &Now, member: &Member, at: u64) -> state::Process {
    let p = now.process;
    let mut layers = now.layers;
    unseen(&mut layers);
    let full = member.full.as_ref().and_then(|full| full.analysis.now().find(|of| of.process.pid == p.pid));
    if let Some(full) = &full {
        layers = Layers { mapping: layers.mapping, ..full.layers };
    }
    let open = || p.sessions.iter().filter(|session| session.closed.is_none() && session.deleted.is_none());
    let libraries = &full.as_ref().unwrap_or(now).process.identity.libraries;
    state::Process {
        pid: p.pid,
        ppid: p.ppid,
        who: member.who.clone(),
        started: member.started,
        before_attach: p.attached(),
        version: libraries.iter().find_map(|library| library.version.clone()),
        blind: libraries.iter().any(|library| library.probes == 0 || (full.is_some() && !library.blind.is_empty())),
        rss: now.rss.map(|(_, bytes)| bytes),
        layers,
        sessions_open: open().count() as u64,
        sessions_opened: p.session_counts().opened,
        oldest_open_ns: open().map(|session| at.saturating_sub(session.opened)).max(),
        boundaries: now.boundaries,
        in_full: member.full.is_some(),
        retained: member.retained.clone(),
        after_boundary: member.growth.last(),
        growth: member.growth.since_first(),
    }
}
