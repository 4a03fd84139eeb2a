//! All other survivors. Said whenever there are any: a report that hides what it cannot explain cannot be trusted.

use super::words::places;
use super::{Claimed, Rule};
use crate::ledger::types::Allocation;
use crate::report::model::{BoundaryKind, Cause, Verdict};
use crate::report::units::{bytes, counted, span_ms};
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::Unexplained, claims, verdicts };

const fn claims(_: &Scene, _: &Allocation) -> bool {
    true
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    if claimed.bytes == 0 {
        return Vec::new();
    }
    let blocks = claimed.groups.iter().map(|g| g.count).sum();
    let ago = |at: u64| span_ms(scene.after.saturating_sub(at) / 1_000_000);
    let oldest = claimed.groups.iter().map(|g| g.oldest).min().unwrap_or(scene.after);
    let youngest = claimed.groups.iter().map(|g| g.youngest).max().unwrap_or(scene.after);
    let state = match scene.kind {
        BoundaryKind::ProcessExit => "was still allocated when the process ended",
        _ => "is still allocated",
    };
    let mut evidence = places(scene, claimed);
    evidence.push(if blocks == 1 {
        format!("made {} before", ago(oldest))
    } else {
        format!("the oldest made {} before, the youngest {}", ago(oldest), ago(youngest))
    });
    let gives_back = match scene.kind {
        BoundaryKind::ProcessExit => "the end of the process gave it back; what would have before is not known",
        _ => "not known",
    };
    vec![Verdict {
        cause: Cause::Unexplained,
        bytes: claimed.bytes,
        summary: format!("{} in {} {state}, and no rule says why.", bytes(claimed.bytes), counted(blocks, "block")),
        evidence,
        gives_back: gives_back.to_owned(),
        refs: claimed.refs(),
    }]
}
