//! Counts of handles that are not exact.

use super::page::{Page, Tone};
use crate::report::model::{HandleBound, HandleClass, Process};
use crate::report::units::{count, counted};

/// A line for each class that the process used, and for sessions in any case.
pub(super) fn not_exact(page: &mut Page, process: &Process) {
    for bound in &process.handles.bounds {
        if bound.class != HandleClass::Sessions && bound.opened_at_least == 0 {
            continue;
        }
        page.beside(&[("not exact:", 12, Tone::Bad)], &sentence(bound));
    }
}

fn sentence(bound: &HandleBound) -> String {
    let between = |low: u64, high: u64| format!("{} to {}", count(low), count(high));
    format!(
        "{}: {} opened, {} closed ({} of calls lost)",
        name(bound.class),
        between(bound.opened_at_least, bound.opened_at_most),
        between(bound.closed_at_least, bound.closed_at_most),
        counted(bound.lost_calls, "record")
    )
}

const fn name(class: HandleClass) -> &'static str {
    match class {
        HandleClass::Sessions => "sessions",
        HandleClass::Graphs => "graphs",
        HandleClass::Contexts => "eager contexts",
        HandleClass::Functions => "functions",
        HandleClass::Servers => "servers",
        HandleClass::WorkerSessions => "worker sessions",
        HandleClass::MasterSessions => "master sessions",
    }
}
