//! A session that was closed through the C API but whose handle lives: in C, close alone frees nothing.

use super::words::{owners, places, sessions};
use super::{Claimed, Rule};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, counted, span_ms};
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::SessionNotDeleted, claims, verdicts };

/// What a server holds is not freed by deleting a client's handle.
fn claims(scene: &Scene, a: &Allocation) -> bool {
    a.owner
        .and_then(|id| scene.process.session(id))
        .is_some_and(|s| s.handle != 0 && !s.remote && s.closed.is_some() && s.deleted.is_none())
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    if claimed.bytes == 0 {
        return Vec::new();
    }
    let holders = owners(claimed);
    let n = holders.len() as u64;
    let oldest = holders.iter().filter_map(|&id| scene.process.session(id)?.closed).min().unwrap_or(scene.after);
    let mut evidence = places(scene, claimed);
    evidence.push(format!(
        "closed and not deleted: {}; the first was closed {} before this was looked at",
        sessions(scene, &holders),
        span_ms(scene.after.saturating_sub(oldest) / 1_000_000)
    ));
    vec![Verdict {
        cause: Cause::SessionNotDeleted,
        bytes: claimed.bytes,
        summary: format!(
            "{} is held by {} that {} closed but whose handle was never deleted.",
            bytes(claimed.bytes),
            counted(n, "session"),
            if n == 1 { "was" } else { "were" }
        ),
        evidence,
        gives_back: "`TF_DeleteSession` after `TF_CloseSession`; in Python drop the last reference to the session \
                     (`del sess`)"
            .to_owned(),
        refs: claimed.refs(),
    }]
}
