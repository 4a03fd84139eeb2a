//! A server's variables outlive the session that made them: they are the container's, and sessions on one server share
//! it (`ResourceMgr`, tensorflow/core/framework/resource_mgr.h). Only clearing the container gives them back.
//!
//! Said of variables alone, and of those whose session is known: what else outlives a session on a worker may be a
//! cache, a table or a leak.

use super::words::{owners, places};
use super::{Claimed, Rule, held};
use crate::ledger::types::{Allocation, SessionId};
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, count, counted, plain, span_ms};
use crate::retention::place::variable_of;
use crate::retention::scene::{Scene, ended};

pub(super) const RULE: Rule = Rule { cause: Cause::WorkerState, claims, verdicts };

/// Sessions named one by one.
const SHOWN: usize = 3;

fn claims(scene: &Scene, a: &Allocation) -> bool {
    scene.process.serves()
        && a.owner.and_then(|id| end_of(scene, id)).is_some()
        && scene.op_name(a).is_some_and(|op| variable_of(&op).is_some())
}

/// When a session that ran on a server of this process ended.
fn end_of(scene: &Scene, id: SessionId) -> Option<u64> {
    match scene.process.worker_sessions.find(id) {
        Some(worker) => worker.deleted,
        None => scene.process.session(id).filter(|s| s.remote).and_then(ended),
    }
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let more = held::beside(scene, Cause::WorkerState);
    let told = held::told(scene, claimed, &more);
    if told.bytes == 0 || (claimed.bytes == 0 && told.bytes < scene.min_bytes) {
        return Vec::new();
    }
    let makers = owners(claimed);
    let mut evidence = places(scene, claimed);
    evidence.extend(told.evidence);
    evidence.extend(makers.iter().take(SHOWN).filter_map(|&id| maker(scene, id)));
    if makers.len() > SHOWN {
        evidence.push(format!("and {}", counted((makers.len() - SHOWN) as u64, "more session")));
    }
    evidence.push(cleared(scene));
    vec![Verdict {
        cause: Cause::WorkerState,
        bytes: told.bytes,
        summary: format!(
            "{} of variables is kept by the server in this process: sessions on a server share its containers, and \
             the {} that made them ended without clearing them.",
            bytes(told.bytes),
            if makers.len() == 1 { "session" } else { "sessions" }
        ),
        evidence,
        gives_back: "`tf.compat.v1.Session.reset(target)` clears the server's containers; so does the end of the \
                     server's process"
            .to_owned(),
        refs: claimed.refs(),
    }]
}

fn maker(scene: &Scene, id: SessionId) -> Option<String> {
    let ago = span_ms(scene.after.saturating_sub(end_of(scene, id)?) / 1_000_000);
    let handle = scene.process.session(id).and_then(|s| s.remote_handle.as_deref());
    let handle = handle.map_or_else(String::new, |h| format!(" (handle {})", plain(h, 20)));
    Some(format!("left by {}{handle}, which ended {ago} before this was looked at", scene.owner_name(id)))
}

fn cleared(scene: &Scene) -> String {
    match scene.process.last_cleanup {
        None => "no container of this worker was cleared in the trace".to_owned(),
        Some(at) => format!(
            "containers of this worker were cleared {} time(s), the last {} before this was looked at: what is left was \
             made later or is in another container",
            count(scene.process.cleanups),
            span_ms(scene.after.saturating_sub(at) / 1_000_000)
        ),
    }
}
