//! One followed process beside what its ledger knows.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    kept::Kept,
    rules::Growth,
    state::{Finding, Retained, Traced},
};
use crate::{
    agent::who::Who,
    event::{Body, Event, ProcessInfo},
    report::model::{BoundaryKind, Cause, Report, Verdict},
    retention::{self, Analysis, Judged, Now},
};

/// The same finding is told again after this time, or when its bytes changed by more than a tenth.
const AGAIN_NS: u64 = 600_000_000_000;
/// A boundary whose process nobody could look at for so long says nothing of its growth.
const UNSEEN_NS: u64 = 60_000_000_000;

/// An analysis of everything that a process does, which goes on for a while.
pub struct Full {
    pub analysis: Analysis,
    /// The last boundary that was told.
    told: u64,
}

#[derive(Default)]
pub struct Member {
    pub who: Arc<Who>,
    pub started: u64,
    pub kept: Kept,
    pub growth: Growth,
    pub full: Option<Full>,
    pub retained: Option<Retained>,
    pub report: Option<Arc<Report>>,
    told: u64,
    measured: u64,
    /// The look that counted last.
    seen: u64,
    said: BTreeMap<Cause, (u64, u64)>,
}

/// What a look at a process brought.
#[derive(Debug, Default)]
pub struct News {
    pub findings: Vec<Finding>,
    pub traced: Vec<Traced>,
    /// A boundary was measured: the rules are to be asked.
    pub measured: bool,
}

impl Member {
    /// Begins an analysis in full, with what is known of the process.
    pub fn begin(&mut self, options: retention::Options, names: &[Event], at: u64) {
        let mut analysis = Analysis::new(options);
        analysis.feed(&Event::of(at, 0, 0, Body::TraceStart));
        analysis.feed(&Event::of(at, 0, 0, Body::Polled));
        for event in names {
            analysis.feed(event);
        }
        for event in self.kept.events() {
            match &event.body {
                // What it allocated before is not known to this analysis.
                Body::Process(info) => {
                    let info = ProcessInfo { attached: true, ..ProcessInfo::clone(info) };
                    analysis.feed(&Event { body: Body::Process(Arc::new(info)), ..event.clone() });
                }
                _ => analysis.feed(event),
            }
        }
        analysis.pass(at);
        let told = analysis.now().map(|now| now.boundaries).max().unwrap_or(0);
        self.full = Some(Full { analysis, told });
    }

    /// The ledger of every day began anew: its boundaries count from 1 again.
    pub const fn restarted(&mut self) {
        (self.told, self.measured) = (0, 0);
    }

    /// Ends it, and keeps its report.
    pub fn finish(&mut self, pid: u32, facts: retention::Facts, at: u64) -> News {
        let Some(full) = self.full.take() else { return News::default() };
        let mut report = full.analysis.finish(facts);
        hide_secrets(&mut report);
        let mut news = News::default();
        if let Some(process) = report.processes.iter().find(|process| process.pid == pid)
            && let Some(last) = process.boundaries.last()
        {
            self.retained = Some(Retained::of(at, last.kind, true, &process.verdicts));
            let version = process.frameworks.iter().find_map(|framework| framework.version.clone());
            let about =
                About { pid, at, version, boundary: last.id, kind: last.kind, label: &last.label, in_full: true };
            news.findings = self.findings(&about, &process.verdicts);
        }
        let report = Arc::new(report);
        news.traced.push(Traced { pid, who: self.who.clone(), report: report.clone() });
        self.report = Some(report);
        news
    }

    /// What is new since this was asked last.
    pub fn news(&mut self, analysis: &Analysis, now: &Now, at: u64) -> News {
        let mut news = News::default();
        for judged in analysis.judged(now, self.measured + 1) {
            match judged.seen {
                // One look serves all boundaries before it, and counts once.
                Some((seen, rss)) if !is_end(judged.kind) && seen > self.seen => {
                    self.seen = seen;
                    self.growth.add(rss);
                    news.measured = true;
                }
                None if at.saturating_sub(judged.after) < UNSEEN_NS => break,
                _ => {}
            }
            self.measured = judged.id;
        }
        let judged: Vec<Judged> = analysis.judged(now, self.told + 1).collect();
        self.told = judged.last().map_or(self.told, |last| last.id);
        self.tell(now, &judged, false, &mut news);
        if let Some(full) = self.full.take() {
            let mut told = full.told;
            for now in full.analysis.now().filter(|of| of.process.pid == now.process.pid) {
                let judged: Vec<Judged> = full.analysis.judged(&now, told + 1).collect();
                told = judged.last().map_or(told, |last| last.id);
                self.tell(&now, &judged, true, &mut news);
            }
            self.full = Some(Full { told, ..full });
        }
        news
    }

    fn tell(&mut self, now: &Now, judged: &[Judged], in_full: bool, news: &mut News) {
        let version = || now.process.identity.libraries.iter().find_map(|library| library.version.clone());
        for boundary in judged {
            // What is known of single blocks is worth more than what is known from outside.
            if in_full || (self.full.is_none() && self.retained.as_ref().is_none_or(|known| !known.in_full)) {
                self.retained = Some(Retained::of(boundary.after, boundary.kind, in_full, boundary.verdicts));
            }
            let about = About {
                pid: now.process.pid,
                at: boundary.after,
                version: version(),
                boundary: boundary.id,
                kind: boundary.kind,
                label: &boundary.label,
                in_full,
            };
            let findings = self.findings(&about, boundary.verdicts);
            news.findings.extend(findings);
        }
    }

    /// Findings worth telling: no reserves of allocators, and none that was told just now.
    fn findings(&mut self, about: &About, verdicts: &[Verdict]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for verdict in verdicts.iter().filter(|verdict| !verdict.cause.is_reserve()) {
            let said = self.said.get(&verdict.cause);
            let same = said.is_some_and(|&(at, bytes)| {
                about.at.saturating_sub(at) < AGAIN_NS && verdict.bytes.abs_diff(bytes) <= bytes / 10
            });
            if same {
                continue;
            }
            self.said.insert(verdict.cause, (about.at, verdict.bytes));
            findings.push(Finding {
                at: about.at,
                pid: about.pid,
                started: self.started,
                who: self.who.clone(),
                version: about.version.clone(),
                boundary: about.boundary,
                kind: about.kind,
                label: about.label.to_owned(),
                in_full: about.in_full,
                verdict: verdict.clone(),
            });
        }
        findings
    }

    /// The process ended; what its last boundary said is told.
    pub fn ended(&mut self, report: &Report, pid: u32, at: u64) -> Vec<Finding> {
        let process = report.processes.iter().rev().find(|process| process.pid == pid);
        let Some((process, last)) = process.and_then(|process| Some((process, process.boundaries.last()?))) else {
            return Vec::new();
        };
        let version = process.frameworks.iter().find_map(|framework| framework.version.clone());
        let about = About { pid, at, version, boundary: last.id, kind: last.kind, label: &last.label, in_full: false };
        self.findings(&about, &last.verdicts)
    }
}

struct About<'a> {
    pid: u32,
    at: u64,
    version: Option<String>,
    boundary: u64,
    kind: BoundaryKind,
    label: &'a str,
    in_full: bool,
}

const fn is_end(kind: BoundaryKind) -> bool {
    matches!(kind, BoundaryKind::ProcessExit | BoundaryKind::TraceEnd)
}

/// Command lines hold passwords and tokens: the program's name is left.
pub fn hide_secrets(report: &mut Report) {
    for process in &mut report.processes {
        process.cmdline.truncate(1);
    }
}
