//! Metrics of the host as a whole and of the agent itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
};

use super::family::{Family, Labels, Unit, Value};
use crate::{
    agent::{discover, escalation, ledgers::state::State, limits},
    live::serve::Gauges,
    profile::word,
};

/// What the agent knows of itself, gathered once a second.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub usage: limits::Usage,
    pub hits: limits::Hits,
    pub stretched: u32,
    pub escalations: escalation::Counts,
    pub reloads: u64,
}

/// What becomes of what is sent away, by destination.
#[derive(Debug, Default)]
pub struct Sent {
    /// What, and its outcome.
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// Bytes that wait on disk, by way.
    spooled: Mutex<BTreeMap<&'static str, u64>>,
}

impl Sent {
    /// `what` and its outcome, so many times.
    pub fn count(&self, what: &'static str, outcome: &'static str, n: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((what, outcome)).or_default() += n;
    }

    pub fn spooled(&self, way: &'static str, bytes: u64) {
        self.spooled.lock().unwrap_or_else(PoisonError::into_inner).insert(way, bytes);
    }
}

fn copy<K: Clone + Ord>(of: &Mutex<BTreeMap<K, u64>>) -> BTreeMap<K, u64> {
    of.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into().into())]
}

pub fn families(own: &Own, state: &State, gauges: &Gauges, found: &discover::Counts, sent: &Sent) -> Vec<Family> {
    use Unit::{Bytes, One, Seconds};
    let gauge = |name, help, unit, value: Value| Family::gauge(name, help, unit).with(Vec::new(), value);
    let counter = |name, help, unit, value: Value| Family::counter(name, help, unit).with(Vec::new(), value);
    let mut lost = Family::counter("tfmem.agent.events.lost", "Events that were lost, by kind.", One);
    for (kind, &count) in &state.lost {
        lost.add(label("tfmem.kind", kind.to_string()), count.into());
    }
    let mut findings = Family::counter("tfmem.retention.findings", "Findings, by cause.", One);
    for (&cause, &count) in &state.totals.findings {
        findings.add(label("tfmem.cause", word(cause)), count.into());
    }
    let mut spooled = Family::gauge("tfmem.agent.spool", "What waits on disk.", Bytes);
    for (way, bytes) in copy(&sent.spooled) {
        spooled.add(label("tfmem.export", way), bytes.into());
    }
    let mut exported = Family::counter("tfmem.agent.export", "What became of what is sent away.", One);
    let mut dropped = Family::counter("tfmem.agent.export.dropped", "Of these, what was given up.", One);
    for ((what, outcome), count) in copy(&sent.counts) {
        let labels: Labels = vec![("tfmem.export", what.into()), ("tfmem.outcome", outcome.into())];
        let family = if outcome.starts_with("dropped") { &mut dropped } else { &mut exported };
        family.add(labels, count.into());
    }
    let totals = &state.totals;
    vec![
        gauge("tfmem.processes", "Processes that are followed.", One, gauges.processes.load(Relaxed).into()),
        gauge("tfmem.processes.in_full", "Of these, traced in full.", One, gauges.in_full.load(Relaxed).into()),
        counter("tfmem.processes.ended", "Processes that were followed and ended.", One, totals.processes_ended.into()),
        counter(
            "tfmem.processes.refused",
            "Processes that were not followed because of a limit.",
            One,
            gauges.refused.load(Relaxed).into(),
        ),
        findings,
        lost,
        counter("tfmem.agent.events", "Events that reached the ledgers.", One, totals.events.into()),
        counter(
            "tfmem.agent.events.forgotten",
            "Rare events that full tracing of their process will not know.",
            One,
            totals.events_forgotten.into(),
        ),
        counter(
            "tfmem.agent.events.unwanted",
            "Events that came after full tracing.",
            One,
            totals.events_unwanted.into(),
        ),
        counter("tfmem.agent.ledgers.restarted", "Ledgers begun anew.", One, totals.ledgers_restarted.into()),
        counter("tfmem.agent.findings.dropped", "Findings nobody fetched.", One, totals.findings_dropped.into()),
        counter("tfmem.agent.cpu.time", "CPU time of the agent.", Seconds, own.usage.cpu.as_secs_f64().into()),
        gauge("tfmem.agent.memory.usage", "Resident memory of the agent.", Bytes, own.usage.memory.into()),
        gauge("tfmem.agent.files", "File descriptors of the agent.", One, own.usage.files.into()),
        gauge("tfmem.agent.probes", "Probes that are in.", One, gauges.probes.load(Relaxed).into()),
        gauge("tfmem.agent.libraries", "Files with probes.", One, gauges.files.load(Relaxed).into()),
        counter("tfmem.agent.files.examined", "Files looked at.", One, found.examined.load(Relaxed).into()),
        counter("tfmem.agent.mappings.told", "Mappings of code.", One, found.told.load(Relaxed).into()),
        counter("tfmem.agent.mappings.lost", "Of these, not told.", One, found.lost.load(Relaxed).into()),
        gauge(
            "tfmem.agent.stretched",
            "How much rarer looks are than configured.",
            One,
            u64::from(own.stretched).into(),
        ),
        Family::counter("tfmem.agent.limit.hits", "How often a limit had an effect.", One)
            .with(label("tfmem.limit", "cpu"), own.hits.cpu.into())
            .with(label("tfmem.limit", "cpu_hard"), own.hits.cpu_hard.into())
            .with(label("tfmem.limit", "memory"), own.hits.memory.into())
            .with(label("tfmem.limit", "files"), own.hits.files.into()),
        Family::counter("tfmem.agent.escalations", "Wishes to trace a process in full.", One)
            .with(label("tfmem.outcome", "by_hand"), own.escalations.by_hand.into())
            .with(label("tfmem.outcome", "by_rule"), own.escalations.by_rule.into())
            .with(label("tfmem.outcome", "refused"), own.escalations.refused.into())
            .with(label("tfmem.outcome", "cut_short"), own.escalations.cut_short.into()),
        counter("tfmem.agent.reloads", "Configurations that were taken.", One, own.reloads.into()),
        exported,
        dropped,
        spooled,
    ]
}
