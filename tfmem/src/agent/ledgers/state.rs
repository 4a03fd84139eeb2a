//! What the ledgers show to others: figures and findings, copied out once a second.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::{
    agent::who::Who,
    report::model::{BoundaryKind, Cause, Layers, Report, Verdict},
};

/// The host's processes at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct State {
    /// Boot clock, ns.
    pub at: u64,
    pub processes: Vec<Process>,
    pub totals: Totals,
    /// Every kind of loss with its count.
    pub lost: BTreeMap<Arc<str>, u64>,
}

/// Sums since the agent began.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    pub events: u64,
    pub processes_ended: u64,
    pub findings: BTreeMap<Cause, u64>,
    /// Rare events that were not kept for an analysis in full, as there were too many.
    pub events_forgotten: u64,
    /// Events of full tracing that came when nobody had asked for them any more.
    pub events_unwanted: u64,
    /// Ledgers that were begun anew because they grew too large.
    pub ledgers_restarted: u64,
    /// Findings that nobody fetched in time.
    pub findings_dropped: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Process {
    pub pid: u32,
    pub ppid: u32,
    pub who: Arc<Who>,
    /// Boot clock, ns.
    pub started: u64,
    /// It ran before the agent saw it.
    pub before_attach: bool,
    pub version: Option<String>,
    /// Calls that are not seen in its libraries although they are traced in full.
    pub blind: bool,
    pub rss: Option<u64>,
    /// A layer that is not looked at is `null`.
    pub layers: Layers,
    pub sessions_open: u64,
    pub sessions_opened: u64,
    /// How long the oldest of them has been open, ns.
    pub oldest_open_ns: Option<u64>,
    pub boundaries: u64,
    pub in_full: bool,
    pub retained: Option<Retained>,
    /// Resident bytes after the last boundary, and how much that was more than after the first.
    pub after_boundary: Option<u64>,
    pub growth: Option<i64>,
}

/// What outlived a boundary, as it was judged last.
#[derive(Clone, Debug, Serialize)]
pub struct Retained {
    /// When, boot clock, ns.
    pub at: u64,
    pub kind: BoundaryKind,
    /// Single blocks were followed. Without, only what is known from outside is counted.
    pub in_full: bool,
    pub by_cause: BTreeMap<Cause, u64>,
}

impl Retained {
    pub fn of(at: u64, kind: BoundaryKind, in_full: bool, verdicts: &[Verdict]) -> Self {
        let mut by_cause = BTreeMap::new();
        for verdict in verdicts {
            let sum: &mut u64 = by_cause.entry(verdict.cause).or_default();
            *sum = sum.saturating_add(verdict.bytes);
        }
        Self { at, kind, in_full, by_cause }
    }
}

/// The report of a process that was traced in full.
#[derive(Clone, Debug)]
pub struct Traced {
    pub pid: u32,
    pub who: Arc<Who>,
    pub report: Arc<Report>,
}

/// A verdict, with whose it is.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Boot clock, ns.
    pub at: u64,
    pub pid: u32,
    pub started: u64,
    pub who: Arc<Who>,
    pub version: Option<String>,
    pub boundary: u64,
    pub kind: BoundaryKind,
    pub label: String,
    pub in_full: bool,
    pub verdict: Verdict,
}
