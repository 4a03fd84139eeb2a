//! From what happened to boundaries: which calls begin one, which end it.

use std::cmp::Reverse;

use super::Analysis;
use super::record::Subject;
use super::watch::{Context, Watch};
use crate::event::{Addr, Body, Event};
use crate::ledger::types::{Change, SessionId};
use crate::report::model::BoundaryKind;

impl Analysis {
    pub(super) fn follow(&mut self, event: &Event, change: &Change) {
        let Some(&i) = self.current.get(&event.pid) else { return };
        let (at, grace) = (event.at, self.options.grace_ns);
        let due = self.with(i, |watch, cx| match change {
            Change::SessionClosing(id) => {
                begin_session(watch, cx, BoundaryKind::SessionClosed, *id, at);
                None
            }
            Change::SessionDeleting(id) => {
                begin_session(watch, cx, BoundaryKind::SessionDeleted, *id, at);
                None
            }
            Change::SessionClosed(id) => {
                let subject = Subject::Session(*id);
                // A delete that closes on its way is one boundary, the delete.
                if cx.process.session(*id).is_some_and(|s| s.deleting.is_some() && s.deleting == s.closing) {
                    watch.dismiss(BoundaryKind::SessionClosed, subject);
                    return None;
                }
                watch.ended(cx, BoundaryKind::SessionClosed, subject, at, grace)
            }
            Change::SessionDeleted(id) => {
                watch.ended(cx, BoundaryKind::SessionDeleted, Subject::Session(*id), at, grace)
            }
            Change::ContextDeleting(context) => {
                begin_context(watch, cx, BoundaryKind::ContextDeleted, *context, at);
                None
            }
            Change::ContextDeleted(context) => {
                watch.contexts.remove(context);
                watch.ended(cx, BoundaryKind::ContextDeleted, Subject::Context(*context), at, grace)
            }
            Change::CachesClearing(context) => {
                begin_context(watch, cx, BoundaryKind::CachesCleared, *context, at);
                None
            }
            Change::CachesCleared(context) => {
                watch.last_cleared = Some(at);
                watch.ended(cx, BoundaryKind::CachesCleared, Subject::Context(*context), at, grace)
            }
            Change::WorkerSessionDeleting(id) => {
                let opened = cx.process.worker_sessions.find(*id).map_or(at, |s| s.opened);
                watch.begins(cx, BoundaryKind::WorkerSessionDeleted, Subject::Worker(*id), opened, at);
                None
            }
            Change::WorkerSessionDeleted(id) => {
                watch.ended(cx, BoundaryKind::WorkerSessionDeleted, Subject::Worker(*id), at, grace)
            }
            Change::WorkerSessionReopened(id) => {
                watch.revoke(BoundaryKind::WorkerSessionDeleted, Subject::Worker(*id));
                None
            }
            Change::ServerStopping(id) => {
                watch.begins(cx, BoundaryKind::ServerStopped, Subject::Server(*id), cx.process.born, at);
                None
            }
            Change::ServerStopped(id) => watch.ended(cx, BoundaryKind::ServerStopped, Subject::Server(*id), at, grace),
            Change::SessionOpened(_) | Change::ProcessEnded | Change::Snapshot | Change::TraceEnd => None,
        });
        if let Some(due) = due.flatten() {
            self.due.push(Reverse((due, i)));
        }
    }

    /// A mark, or a function that the user named as a boundary.
    pub(super) fn users_boundary(&mut self, i: usize, event: &Event) {
        let (at, grace) = (event.at, self.options.grace_ns);
        let due = self.with(i, |watch, cx| match &event.body {
            Body::Mark { label } => {
                let subject = Subject::Mark(watch.marks.len());
                watch.marks.push(label.clone());
                let opened = watch.last_mark.replace(at).unwrap_or_else(|| seen_from(cx));
                watch.begins(cx, BoundaryKind::Mark, subject, opened, at);
                watch.ended(cx, BoundaryKind::Mark, subject, at, grace)
            }
            Body::UserEnter { number } => {
                let subject = Subject::Symbol(*number);
                let opened = watch.last_symbol.get(number).copied().unwrap_or_else(|| seen_from(cx));
                watch.begins(cx, BoundaryKind::Symbol, subject, opened, at);
                if !cx.ledger.user_symbol(*number).is_some_and(|s| s.entry_only) {
                    return None;
                }
                watch.last_symbol.insert(*number, at);
                watch.ended(cx, BoundaryKind::Symbol, subject, at, grace)
            }
            Body::UserLeave { number } => {
                watch.last_symbol.insert(*number, at);
                watch.ended(cx, BoundaryKind::Symbol, Subject::Symbol(*number), at, grace)
            }
            _ => None,
        });
        if let Some(due) = due.flatten() {
            self.due.push(Reverse((due, i)));
        }
    }
}

/// Where what the trace knows of a process begins.
fn seen_from(cx: Context) -> u64 {
    if cx.process.attached() { cx.process.born.max(cx.trace_start) } else { cx.process.born }
}

fn begin_session(watch: &mut Watch, cx: Context, kind: BoundaryKind, id: SessionId, at: u64) {
    let opened = cx.process.session(id).map_or(at, |s| s.opened);
    watch.begins(cx, kind, Subject::Session(id), opened, at);
}

/// A context's span begins where it was made; for its caches, where they were cleared last.
fn begin_context(watch: &mut Watch, cx: Context, kind: BoundaryKind, context: Addr, at: u64) {
    let made = watch.contexts.get(&context).copied().unwrap_or(cx.process.born);
    let opened = match kind {
        BoundaryKind::CachesCleared => watch.last_cleared.map_or(made, |cleared| cleared.max(made)),
        _ => made,
    };
    watch.begins(cx, kind, Subject::Context(context), opened, at);
}
