//! Boundaries, survivors and verdicts of small programs.

mod causes;
mod distributed;
mod gpus;
mod handles;
mod noise;
mod observations;
mod pools;
mod processes;
mod sessions;

use crate::report::model::{Boundary, BoundaryKind, Cause, Process, Report, Verdict};

/// The one process of a report.
fn only(report: &Report) -> &Process {
    assert_eq!(report.processes.len(), 1);
    &report.processes[0]
}

fn verdict(verdicts: &[Verdict], cause: Cause) -> Option<&Verdict> {
    let mut of_cause = verdicts.iter().filter(|v| v.cause == cause);
    let first = of_cause.next();
    assert!(of_cause.next().is_none(), "{cause:?} is there twice");
    first
}

fn boundary(process: &Process, kind: BoundaryKind, n: usize) -> &Boundary {
    process.boundaries.iter().filter(|b| b.kind == kind).nth(n).expect("boundary")
}

/// What must hold of every report, whatever the program did.
fn check(report: &Report) {
    for process in &report.processes {
        let t = &process.timeline;
        assert!(t.edges.is_sorted() && t.edges.len() == t.rss.len() && t.edges.len() == t.in_use.len());
        for b in &process.boundaries {
            // Each survivor has one cause, and what is not explained is said.
            let sum = |cause| b.survivors.iter().filter(|s| s.cause == cause).map(|s| s.bytes).sum::<u64>();
            for cause in [Cause::SessionOpen, Cause::SessionNotDeleted, Cause::Unexplained] {
                let said: u64 = b.verdicts.iter().filter(|v| v.cause == cause).map(|v| v.bytes).sum();
                // What was there before the trace is no survivor, and can be an open session's.
                let exact = cause != Cause::SessionOpen || !process.attached;
                assert!(said == sum(cause) || (!exact && said > sum(cause)), "{cause:?} in {}", b.label);
            }
            for side in [&b.before, &b.after] {
                if let Some(rss) = side.rss_bytes {
                    let s = &side.bands;
                    let known = [s.pool_in_use, s.pool_free, s.heap_in_use, s.heap_free];
                    let bands = known.into_iter().chain([s.mappings_other, s.files, s.unexplained]);
                    assert_eq!(bands.flatten().sum::<u64>(), rss, "bands of {}", b.label);
                }
            }
            for v in b.verdicts.iter().chain(&process.verdicts) {
                assert!(!v.summary.is_empty() && !v.gives_back.is_empty(), "{v:?}");
            }
            for i in b.verdicts.iter().flat_map(|v| &v.refs.survivors) {
                assert!(*i < b.survivors.len());
            }
        }
    }
}
