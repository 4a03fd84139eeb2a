//! Counts of handles that are not exact, because records of calls were lost.

use crate::ledger::Process;
use crate::report::model::{HandleBound, HandleClass, HandleCount, Handles};

/// None when no record of a call was lost. What is counted was seen; each lost record hides at most one handle of a
/// class that was opened or closed.
pub(super) fn bounds(process: &Process, handles: &Handles) -> Vec<HandleBound> {
    let lost_calls = process.calls_missed();
    if lost_calls == 0 {
        return Vec::new();
    }
    let count = |class, count: &HandleCount| Some((class, count.opened?, count.closed?));
    let sessions = &handles.sessions;
    [
        Some((HandleClass::Sessions, sessions.opened, sessions.closed)),
        count(HandleClass::Graphs, &handles.graphs),
        count(HandleClass::Contexts, &handles.contexts),
        count(HandleClass::Functions, &handles.functions),
        count(HandleClass::Servers, &handles.servers),
        count(HandleClass::WorkerSessions, &handles.worker_sessions),
        count(HandleClass::MasterSessions, &handles.master_sessions),
    ]
    .into_iter()
    .flatten()
    .map(|(class, opened, closed)| HandleBound {
        class,
        opened_at_least: opened,
        opened_at_most: opened.saturating_add(lost_calls),
        closed_at_least: closed,
        closed_at_most: closed.saturating_add(lost_calls),
        lost_calls,
    })
    .collect()
}
