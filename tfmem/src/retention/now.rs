//! An analysis that goes on, as it is at this moment.

use super::{Analysis, Facts, assemble, record, watch};
use crate::{
    ledger::Process,
    report::model::{BoundaryKind, Layers, Report, Verdict},
};

/// A boundary whose survivors were judged.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// Number within its process, from 1.
    pub id: u64,
    pub kind: BoundaryKind,
    pub label: String,
    /// Boot clock, ns: when the closing call returned, and when survivors were taken.
    pub at: u64,
    pub after: u64,
    /// When the process was looked at after that, and how much was resident; `None`: not yet, or never.
    pub seen: Option<(u64, u64)>,
    pub verdicts: &'a [Verdict],
}

/// A process that has not ended.
#[derive(Clone, Debug)]
pub struct Now<'a> {
    pub process: &'a Process,
    /// Bytes by layer as the ledger knows them.
    pub layers: Layers,
    /// Resident bytes, and when they were read.
    pub rss: Option<(u64, u64)>,
    /// TensorFlow's probes are in it.
    pub watched: bool,
    /// Boundaries so far, those that are not kept included.
    pub boundaries: u64,
    number: usize,
}

impl Analysis {
    /// Processes that have not ended.
    pub fn now(&self) -> impl Iterator<Item = Now<'_>> {
        let all = self.ledger.processes().zip(&self.watches).enumerate();
        all.filter(|(_, (process, _))| process.alive()).map(|(number, (process, watch))| {
            let watched = watch::watched(process);
            Now {
                process,
                layers: record::layers(process, watched),
                rss: super::last_rss(process),
                watched,
                boundaries: watch.records.last().map_or(0, |record| record.id),
                number,
            }
        })
    }

    /// The boundaries of a process from this number on.
    pub fn judged(&self, of: &Now, from: u64) -> impl Iterator<Item = Judged<'_>> {
        let records = self.watches.get(of.number).map_or(&[][..], |watch| &watch.records);
        let first = records.partition_point(|record| record.id < from);
        records.iter().skip(first).map(|record| Judged {
            id: record.id,
            kind: record.kind,
            label: assemble::label(record),
            at: record.at,
            after: record.after,
            seen: record.after_side.observed.zip(record.after_side.rss),
            verdicts: &record.verdicts,
        })
    }

    /// Everything up to this moment was fed: what is due is judged.
    pub fn pass(&mut self, at: u64) {
        self.last = self.last.max(at);
        self.run_due(at);
    }

    /// Processes that the ledger holds, those that ended included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.watches.len()
    }

    /// The report as it would be if the trace ended here, with nothing judged that is not due.
    #[must_use]
    pub fn report_so_far(&self, facts: Facts) -> Report {
        assemble::report(self, facts)
    }
}
