//! Sessions that are open at the end hold their variables and constants: somebody forgot to close them.

use super::words::{owners, places, sessions};
use super::{Claimed, Rule, held};
use crate::event::{Holder, HolderKind};
use crate::ledger::types::{Allocation, Session, SessionId};
use crate::report::model::{BoundaryKind, Cause, Verdict};
use crate::report::units::{bytes, count, counted, plain, span_ms};
use crate::retention::scene::{Scene, ended};

pub(super) const RULE: Rule = Rule { cause: Cause::SessionOpen, claims, verdicts };

/// Only at the end, and where the user expected memory back: at another session's close an open session does what it
/// should.
fn claims(scene: &Scene, a: &Allocation) -> bool {
    let asked = scene.is_end() || matches!(scene.kind, BoundaryKind::Mark | BoundaryKind::Symbol);
    asked && a.owner.is_some_and(|id| scene.process.session(id).is_some_and(is_open) || is_open_elsewhere(scene, id))
}

/// A client's session whose client did not close it.
fn is_open_elsewhere(scene: &Scene, id: SessionId) -> bool {
    scene.process.worker_sessions.find(id).is_some_and(|s| s.deleting.is_none())
}

/// One whose close is under way was not forgotten.
fn is_open(session: &Session) -> bool {
    ended(session).is_none() && session.closing.is_none()
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let more = held::beside(scene, Cause::SessionOpen);
    if claimed.bytes == 0 {
        return of_holders(scene, claimed, &more);
    }
    // Tables and what else hangs on resources was taken from malloc directly.
    let beside: u64 = more.iter().fold(0, |sum, (_, held)| sum.saturating_add(*held));
    let total = claimed.bytes.saturating_add(beside);
    let holders = owners(claimed);
    let held: Vec<&Session> = holders.iter().filter_map(|&id| scene.process.session(id)).collect();
    let served: Vec<u64> =
        holders.iter().filter_map(|&id| scene.process.worker_sessions.find(id)).map(|s| s.opened).collect();
    let oldest = held.iter().map(|s| s.opened).chain(served.iter().copied()).min().unwrap_or(scene.after);
    let summary = format!(
        "{} is held by {} that nobody closed (oldest {}).",
        bytes(total),
        counted(holders.len() as u64, "session"),
        span_ms(scene.after.saturating_sub(oldest) / 1_000_000),
    );
    let mut evidence = places(scene, claimed);
    if beside > 0 {
        evidence.extend(held::told(scene, claimed, &more).evidence);
    }
    let all = &scene.process.sessions;
    let closed = all.iter().filter(|s| !is_open(s)).count();
    if !all.is_empty() || served.is_empty() {
        evidence.push(format!(
            "{} opened, {} closed; memory is held by {}",
            counted(all.len() as u64, "session"),
            count(closed as u64),
            sessions(scene, &holders)
        ));
    }
    if !served.is_empty() {
        evidence.push(format!("{} ran here for a client that did not close it", sessions(scene, &holders)));
    }
    let models: Vec<String> =
        held.iter().filter_map(|s| s.saved_model.as_deref()).take(3).map(|m| plain(m, 80)).collect();
    if !models.is_empty() {
        evidence.push(format!("loaded from {}", models.join(", ")));
    }
    vec![Verdict {
        cause: Cause::SessionOpen,
        bytes: total,
        summary,
        evidence,
        gives_back: if held.is_empty() {
            "close the session in the process that opened it, or end that process".to_owned()
        } else {
            gives_back(&held)
        },
        refs: claimed.refs(),
    }]
}

/// What the containers of sessions hold, found at the end: of sessions that were open before the trace, no call was seen.
fn of_holders(scene: &Scene, claimed: &Claimed, more: &[(&Holder, u64)]) -> Vec<Verdict> {
    let alive: u64 = scene.holders.of_kind(HolderKind::Session).map(|holder| holder.count).sum();
    let told = held::told(scene, claimed, more);
    if told.bytes == 0 || told.bytes < scene.min_bytes || alive == 0 {
        return Vec::new();
    }
    let mut evidence = told.evidence;
    let since = if scene.attached() { "opened before the trace and not closed" } else { "not closed" };
    evidence.push(format!("{} alive", counted(alive, "session object")));
    vec![Verdict {
        cause: Cause::SessionOpen,
        bytes: told.bytes,
        summary: format!("{} is held by {} {since}.", bytes(told.bytes), counted(alive, "session")),
        evidence,
        gives_back:
            "close them: `sess.close()`, or open with `with tf.compat.v1.Session() as sess:`; through the C API, \
                     `TF_CloseSession` and `TF_DeleteSession`"
                .to_owned(),
        refs: claimed.refs(),
    }]
}

/// Each way to open a session has its own way to close it.
fn gives_back(held: &[&Session]) -> String {
    let them = if held.len() == 1 { "it" } else { "them" };
    let all = |of: fn(&Session) -> bool| !held.is_empty() && held.iter().all(|s| of(s));
    if all(|s| s.saved_model.is_some()) {
        format!(
            "close the session that loaded the model: `TF_CloseSession` and `TF_DeleteSession` in C, \
             `SavedModelBundle.close()` in Java ({} loaded through `TF_LoadSessionFromSavedModel`)",
            held.len()
        )
    } else if all(|s| s.handle == 0) {
        format!("close {them}: call `Session::Close()` and delete the session object (opened through C++)")
    } else {
        format!("close {them}: `sess.close()`, or open with `with tf.compat.v1.Session() as sess:`")
    }
}
