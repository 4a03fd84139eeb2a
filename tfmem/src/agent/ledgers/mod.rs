//! The ledgers of a host: one for each tree of processes, so that one that ended can be forgotten. A thread of its own;
//! whoever reads the kernel's buffer hands events over and goes on.

mod kept;
mod member;
mod rules;
pub mod state;
mod thread;
mod tree;

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;

use self::{
    member::Member,
    state::{Finding, State, Totals},
    tree::Tree,
};
pub use self::{
    state::{Process, Traced},
    thread::{Ask, Handle, Shared, Wish, start},
    tree::{RARE, TRACING},
};
use super::{config::Rule, who::Who};
use crate::{
    event::{Body, Event},
    live::{Capabilities, facts, sink::Passed},
    report::model::Report,
    retention::Options,
};

/// Names of ops that are kept for processes that are traced in full later.
const MOST_NAMES: usize = 16_384;

pub struct Ledgers {
    options: Options,
    capabilities: Capabilities,
    rules: Vec<Rule>,
    trees: BTreeMap<u64, Tree>,
    /// The tree that a process is in.
    of: FxHashMap<u32, u64>,
    next: u64,
    names: Vec<Event>,
    lost: BTreeMap<Arc<str>, u64>,
    totals: Totals,
    findings: Vec<Finding>,
    traced: Vec<Traced>,
    /// Processes that a rule speaks of.
    wishes: Vec<Wish>,
}

impl Ledgers {
    pub fn new(options: Options, rules: Vec<Rule>, capabilities: Capabilities) -> Self {
        Self {
            options,
            capabilities,
            rules,
            trees: BTreeMap::new(),
            of: FxHashMap::default(),
            next: 0,
            names: Vec::new(),
            lost: BTreeMap::new(),
            totals: Totals::default(),
            findings: Vec::new(),
            traced: Vec::new(),
            wishes: Vec::new(),
        }
    }

    pub fn take(&mut self, passed: &Passed) {
        match passed {
            Passed::Events(events) => events.iter().for_each(|event| self.event(event)),
            Passed::Full(pid) => self.begin(*pid),
            Passed::Rare(pid) => self.finish(*pid),
            Passed::Time(at) => self.pass(*at),
        }
    }

    fn event(&mut self, event: &Event) {
        self.totals.events += 1;
        match &event.body {
            Body::TraceStart | Body::TraceEnd | Body::Polled => {}
            Body::Lost { what, count } => {
                let known = self.lost.entry(what.clone()).or_default();
                *known = (*known).max(*count);
                self.trees.values_mut().for_each(|tree| tree.feed(event));
            }
            Body::OpName { .. } | Body::Stack(_) | Body::CodeFile(_) | Body::UserSymbol { .. } => self.name(event),
            Body::Fork { child, .. } => {
                let tree = self.tree_of(event);
                self.of.insert(*child, tree);
                self.feed(tree, event);
            }
            _ => {
                let tree = self.tree_of(event);
                self.feed(tree, event);
            }
        }
    }

    /// What holds for all processes: only who is traced in full needs it.
    fn name(&mut self, event: &Event) {
        if self.names.len() < MOST_NAMES {
            self.names.push(event.clone());
        }
        let members = self.trees.values_mut().flat_map(|tree| tree.members.values_mut());
        for full in members.filter_map(|member| member.full.as_mut()) {
            full.analysis.feed(event);
        }
    }

    fn tree_of(&mut self, event: &Event) -> u64 {
        if let Some(&tree) = self.of.get(&event.pid) {
            return tree;
        }
        self.next += 1;
        self.of.insert(event.pid, self.next);
        self.trees.insert(self.next, Tree::new(self.options, event.at));
        self.next
    }

    fn feed(&mut self, number: u64, event: &Event) {
        let Some(tree) = self.trees.get_mut(&number) else { return };
        if let Body::Process(info) = &event.body {
            let member = tree.members.entry(event.pid).or_default();
            // Another program, or another process with this pid.
            if member.started != info.started_at {
                *member = Member::default();
            }
            member.started = info.started_at;
            member.who = Arc::new(Who::read(event.pid, info));
        }
        let rare = is_rare(&event.body);
        let mut in_full_alone = is_of_blocks(&event.body);
        if let Some(member) = tree.members.get_mut(&event.pid) {
            if let Body::Library(library) = &event.body {
                // Told again as one sees it who has all probes.
                in_full_alone = member.full.is_some() && member.kept.knows(library);
            }
            if rare && !in_full_alone {
                self.totals.events_forgotten += member.kept.add(event);
            }
            match &mut member.full {
                Some(full) => full.analysis.feed(event),
                None if !rare => self.totals.events_unwanted += 1,
                None => {}
            }
        }
        // In the ledger of every day nothing is told of blocks: half of it would be worse than none.
        if rare && !in_full_alone {
            tree.feed(event);
        }
        if matches!(event.body, Body::Ended { .. }) {
            self.of.remove(&event.pid);
            self.totals.processes_ended += 1;
        }
    }

    fn member(&mut self, pid: u32) -> Option<&mut Member> {
        self.trees.get_mut(self.of.get(&pid)?)?.members.get_mut(&pid)
    }

    fn begin(&mut self, pid: u32) {
        let (options, names) = (self.options, std::mem::take(&mut self.names));
        if let Some(member) = self.member(pid) {
            member.begin(options, &names, crate::target::clock::boot_ns());
        }
        self.names = names;
    }

    fn finish(&mut self, pid: u32) {
        let facts = facts::gather(self.capabilities.clone());
        if let Some(member) = self.member(pid) {
            let news = member.finish(pid, facts, crate::target::clock::boot_ns());
            self.traced.extend(news.traced);
            self.tell(news.findings);
        }
    }

    /// Everything up to this moment was taken in.
    fn pass(&mut self, at: u64) {
        let mut findings = Vec::new();
        for tree in self.trees.values_mut() {
            if tree.is_too_large() {
                tree.restart(self.options, at);
                self.totals.ledgers_restarted += 1;
            }
            for (pid, news) in tree.news(at) {
                findings.extend(news.findings);
                let growth = tree.members.get(&pid).filter(|member| news.measured && member.full.is_none());
                let rule = growth.and_then(|member| self.rules.iter().find(|rule| member.growth.meets(**rule)));
                self.wishes.extend(rule.map(|&rule| Wish { pid, rule }));
            }
        }
        let grace = self.options.grace_ns;
        let over = |tree: &Tree| tree.ended.is_some_and(|ended| ended.saturating_add(2 * grace) < at);
        let ended: Vec<u64> = self.trees.iter().filter(|(_, tree)| over(tree)).map(|(number, _)| *number).collect();
        if !ended.is_empty() {
            let facts = facts::gather(self.capabilities.clone());
            for number in ended {
                if let Some(tree) = self.trees.remove(&number) {
                    let news = tree.finish(&facts, at);
                    findings.extend(news.findings);
                    self.traced.extend(news.traced);
                }
                self.of.retain(|_, of| *of != number);
            }
        }
        self.tell(findings);
    }

    fn tell(&mut self, findings: Vec<Finding>) {
        for finding in &findings {
            *self.totals.findings.entry(finding.verdict.cause).or_default() += 1;
        }
        self.findings.extend(findings);
    }

    fn state(&self, at: u64) -> State {
        State {
            at,
            processes: self.trees.values().flat_map(|tree| tree.processes(at)).collect(),
            totals: self.totals.clone(),
            lost: self.lost.clone(),
        }
    }

    /// The report of the last full tracing of a process, or of what is known without.
    fn report(&self, pid: u32) -> Option<Arc<Report>> {
        let tree = self.trees.get(self.of.get(&pid)?)?;
        let member = tree.members.get(&pid)?;
        let facts = || facts::gather(self.capabilities.clone());
        if let Some(full) = &member.full {
            let mut report = full.analysis.report_so_far(facts());
            member::hide_secrets(&mut report);
            return Some(Arc::new(report));
        }
        member.report.clone().or_else(|| Some(Arc::new(tree.report(facts()))))
    }

    /// Memory is short: what only serves later is given up.
    fn trim(&mut self) {
        self.names = Vec::new();
        for member in self.trees.values_mut().flat_map(|tree| tree.members.values_mut()) {
            self.totals.events_forgotten += member.kept.forget_calls();
            member.report = None;
        }
    }
}

/// Is the event told of every process that is followed?
const fn is_rare(body: &Body) -> bool {
    match body {
        Body::ChunkAlloc { .. } | Body::ChunkFree { .. } | Body::HeapAlloc { .. } | Body::HeapFree { .. } => false,
        Body::Enter { call, .. } | Body::Leave { call, .. } => !call.is_step(),
        _ => true,
    }
}

/// Losses of records that only full tracing has.
const fn is_of_blocks(body: &Body) -> bool {
    use crate::event::Missed::{ChunkGivenBack, ChunkTaken, HeapGivenBack, HeapTaken};
    matches!(body, Body::Missed { what: ChunkTaken | ChunkGivenBack | HeapTaken | HeapGivenBack, .. })
}
