use super::*;
use crate::ledger::types::{Anomalies, HandleCount, SessionCounts};
use Change::{
    CachesCleared, CachesClearing, ContextDeleted, ContextDeleting, SessionClosed, SessionClosing, SessionDeleted,
    SessionDeleting, SessionOpened,
};

const H: u64 = 0x5e55;
const D: u64 = 0xd1ec;

/// Opens a session as the C API does.
fn open(t: &mut Trace, handle: u64, direct: u64) -> Vec<Change> {
    let mut changes = t.enter(Call::NewSession, &[]);
    changes.extend(t.enter(Call::DirectSessionNew, &[direct]));
    changes.extend(t.enter(Call::DirectSessionNew, &[direct]));
    changes.extend(t.leave(Call::NewSession, handle));
    changes
}

fn counts(t: &Trace) -> (u64, u64, u64) {
    let SessionCounts { opened, closed, deleted } = t.process().session_counts();
    (opened, closed, deleted)
}

#[test]
fn open_run_close_delete() {
    let mut t = Trace::new();
    assert_eq!(open(&mut t, H, D), [SessionOpened(1)]);
    let session = t.process().session(1).unwrap();
    assert_eq!((session.handle, session.direct, session.opened, session.tid), (H, D, 1, PID));

    assert_eq!(t.enter(Call::SessionRun, &[H]), []);
    assert_eq!(t.process().session(1).unwrap().running, 1);
    assert_eq!(t.leave(Call::SessionRun, 0), []);
    let session = t.process().session(1).unwrap();
    assert_eq!((session.runs, session.running), (1, 0));

    assert_eq!(t.enter(Call::CloseSession, &[H]), [SessionClosing(1)]);
    assert_eq!(t.call(Call::DirectSessionClose, &[D], 0), []);
    assert_eq!(t.leave(Call::CloseSession, 0), [SessionClosed(1)]);
    assert_eq!(t.call(Call::CloseSession, &[H], 0), []);
    assert_eq!(t.process().sessions.open().count(), 1);

    assert_eq!(t.enter(Call::DeleteSession, &[H]), [SessionDeleting(1)]);
    assert_eq!(t.enter(Call::DirectSessionDestroy, &[D]), []);
    assert_eq!(t.leave(Call::DeleteSession, 0), [SessionDeleted(1)]);
    let session = t.process().session(1).unwrap();
    assert_eq!((session.closing, session.closed), (Some(7), Some(10)));
    assert_eq!((session.deleting, session.deleted), (Some(13), Some(15)));
    assert_eq!(counts(&t), (1, 1, 1));
    assert_eq!(t.process().sessions.open().count(), 0);
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn a_delete_closes_on_the_way() {
    let mut t = Trace::new();
    open(&mut t, H, D);
    assert_eq!(t.enter(Call::DeleteSession, &[H]), [SessionClosing(1), SessionDeleting(1)]);
    assert_eq!(t.leave(Call::DeleteSession, 0), [SessionClosed(1), SessionDeleted(1)]);

    // With the close seen inside, in the order the destructor gives it.
    open(&mut t, H, D);
    assert_eq!(t.enter(Call::DeleteSession, &[H]), [SessionClosing(2), SessionDeleting(2)]);
    t.enter(Call::DirectSessionDestroy, &[D]);
    assert_eq!(t.call(Call::DirectSessionClose, &[D], 0), [SessionClosed(2)]);
    assert_eq!(t.enter(Call::DirectSessionDestroy, &[D]), []);
    assert_eq!(t.leave(Call::DeleteSession, 0), [SessionDeleted(2)]);
    assert_eq!(counts(&t), (2, 2, 2));
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn an_opening_that_fails_makes_no_session() {
    let mut t = Trace::new();
    t.enter(Call::NewSession, &[]);
    t.enter(Call::DirectSessionNew, &[D]);
    t.enter(Call::DirectSessionDestroy, &[D]);
    assert_eq!(t.call(Call::DirectSessionClose, &[D], 0), []);
    assert_eq!(t.leave(Call::NewSession, 0), []);
    assert!(t.process().sessions.is_empty());
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn a_saved_model_opens_a_session() {
    let mut t = Trace::new();
    t.push(Body::Enter { call: Call::LoadSavedModel, args: [0; 6], text: Some("/models/1".into()) });
    t.enter(Call::DirectSessionNew, &[D]);
    t.chunk_by(0x10, 0, 0);
    // Its own first run: the session has its number, not yet its handle.
    t.enter(Call::DirectSessionStep, &[D, 41]);
    t.on(7).chunk_by(0x20, 5, 41);
    assert_eq!(t.on(PID).leave(Call::LoadSavedModel, H), [SessionOpened(1)]);
    let session = t.process().session(1).unwrap();
    assert_eq!(session.saved_model.as_deref(), Some("/models/1"));
    assert_eq!((session.opened, session.direct), (1, D));
    assert_eq!((t.owner(0x10), t.owner(0x20)), (Some(1), Some(1)));
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn a_cpp_program_has_no_handles() {
    let mut t = Trace::new();
    assert_eq!(t.enter(Call::DirectSessionNew, &[D]), [SessionOpened(1)]);
    assert_eq!(t.enter(Call::DirectSessionNew, &[D]), []);
    t.enter(Call::DirectSessionStep, &[D, 3]);
    assert_eq!(t.enter(Call::DirectSessionClose, &[D]), [SessionClosing(1)]);
    assert_eq!(t.leave(Call::DirectSessionClose, 0), [SessionClosed(1)]);
    assert_eq!(t.enter(Call::DirectSessionDestroy, &[D]), [SessionDeleting(1), SessionDeleted(1)]);
    assert_eq!(t.enter(Call::DirectSessionDestroy, &[D]), []);
    let session = t.process().session(1).unwrap();
    assert_eq!((session.handle, session.runs, session.direct), (0, 1, 0));

    assert_eq!(t.enter(Call::DirectSessionNew, &[D]), [SessionOpened(2)]);
    assert_eq!(
        t.enter(Call::DirectSessionDestroy, &[D]),
        [SessionClosing(2), SessionDeleting(2), SessionClosed(2), SessionDeleted(2)]
    );
    // The destructor closes the object: that is over already.
    assert_eq!(t.call(Call::DirectSessionClose, &[D], 0), []);
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn an_address_used_again_is_another_session() {
    let mut t = Trace::new();
    for id in 1..=3 {
        assert_eq!(open(&mut t, H, D), [SessionOpened(id)]);
        t.call(Call::DeleteSession, &[H], 0);
    }
    assert_eq!(counts(&t), (3, 3, 3));
    assert_eq!(t.process().anomalies, Anomalies::default());

    // Still open as far as the ledger knows: its end was lost.
    open(&mut t, H, D);
    let changes = open(&mut t, H, D);
    assert_eq!(changes, [SessionClosing(4), SessionDeleting(4), SessionClosed(4), SessionDeleted(4), SessionOpened(5)]);
    assert_eq!(t.process().anomalies, Anomalies { reused_alive: 1, ..Anomalies::default() });
    assert_eq!(t.process().sessions.open().map(|s| s.id).collect::<Vec<_>>(), [5]);
}

#[test]
fn an_address_given_back_inside_a_delete_may_be_used_at_once() {
    let mut t = Trace::new();
    open(&mut t, H, D);
    t.enter(Call::DeleteSession, &[H]);
    assert_eq!(open(t.on(7), H, D), [SessionOpened(2)]);
    assert_eq!(t.on(PID).leave(Call::DeleteSession, 0), [SessionClosed(1), SessionDeleted(1)]);
    assert_eq!(t.call(Call::DirectSessionClose, &[D], 0), [SessionClosing(2), SessionClosed(2)]);
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn handles_opened_before_the_trace_are_counted_and_no_more() {
    let mut t = Trace::new();
    for call in [Call::SessionRun, Call::CloseSession, Call::DeleteSession] {
        assert_eq!(t.call(call, &[H], 0), []);
    }
    assert_eq!(t.process().anomalies.unknown_handles, 3);
    t.enter(Call::CloseSession, &[H]);
    t.call(Call::DirectSessionClose, &[D], 0);
    t.leave(Call::CloseSession, 0);
    t.enter(Call::DeleteSession, &[H]);
    t.enter(Call::DirectSessionDestroy, &[D]);
    t.call(Call::DirectSessionClose, &[D], 0);
    t.leave(Call::DeleteSession, 0);
    // What is inside a counted call is not counted again.
    assert_eq!(t.process().anomalies.unknown_handles, 5);
    t.call(Call::DirectSessionClose, &[0xabc], 0);
    t.enter(Call::DirectSessionDestroy, &[0xdef]);
    t.enter(Call::DirectSessionStep, &[0xabc, 1]);
    assert_eq!(t.process().anomalies.unknown_handles, 8);
    assert!(t.process().sessions.is_empty());
}

#[test]
fn two_threads_open_at_once() {
    let mut t = Trace::new();
    t.on(1).enter(Call::NewSession, &[]);
    t.on(2).enter(Call::NewSession, &[]);
    assert_eq!(t.leave(Call::NewSession, 0x20), [SessionOpened(2)]);
    assert_eq!(t.on(1).leave(Call::NewSession, 0x10), [SessionOpened(1)]);
    assert_eq!(t.process().sessions.iter().map(|s| (s.id, s.handle)).collect::<Vec<_>>(), [(1, 0x10), (2, 0x20)]);
}

#[test]
fn returns_that_were_lost() {
    let mut t = Trace::new();
    // An outer return ends what is inside.
    open(&mut t, H, D);
    t.enter(Call::DeleteSession, &[H]);
    t.enter(Call::DirectSessionClose, &[D]);
    assert_eq!(t.leave(Call::DeleteSession, 0), [SessionClosed(1), SessionDeleted(1)]);
    assert_eq!(t.process().anomalies.unpaired_calls, 1);

    // A program's call cannot come from inside a close: it has returned.
    open(&mut t, H, D);
    t.enter(Call::CloseSession, &[H]);
    assert_eq!(t.enter(Call::SessionRun, &[0x77]), [SessionClosed(2)]);
    assert_eq!(t.process().anomalies.unpaired_calls, 2);
    // It can from inside a run, where Python functions are called.
    t.enter(Call::NewSession, &[]);
    assert_eq!(t.process().anomalies.unpaired_calls, 2);

    // A thread that ends is in no call. The object inside tells that the session is there.
    t.enter(Call::DirectSessionNew, &[0xeee]);
    assert_eq!(t.push(Body::ThreadExit), [SessionOpened(3)]);
    assert_eq!(t.process().anomalies.unpaired_calls, 4);
    assert_eq!(t.process().session(3).unwrap().handle, 0);

    // Entries that were lost: what they return is there.
    assert_eq!(t.leave(Call::CloseSession, 0), []);
    assert_eq!(t.leave(Call::NewSession, 0x99), [SessionOpened(4)]);
    assert_eq!(t.leave(Call::NewSession, 0), []);
    t.leave(Call::NewGraph, 1);
    assert_eq!(t.process().anomalies.unpaired_calls, 8);
    assert_eq!(t.process().graphs.opened, 1);
    // Nothing returns from a call that only its entry tells of.
    t.leave(Call::DirectSessionNew, 5);
    assert_eq!(t.process().anomalies.unpaired_calls, 8);
}

#[test]
fn a_run_whose_return_was_lost_ends_with_its_session() {
    let mut t = Trace::new();
    open(&mut t, H, D);
    t.enter(Call::SessionRun, &[H]);
    t.on(7).call(Call::DeleteSession, &[H], 0);
    assert_eq!(t.process().session(1).unwrap().running, 0);
    open(&mut t, H, D);
    t.enter(Call::SessionRun, &[H]);
    t.on(8).chunk_by(0x10, 1, 0);
    assert_eq!(t.owner(0x10), Some(2));
}

#[test]
fn the_stack_of_a_thread_is_bounded() {
    let mut t = Trace::new();
    open(&mut t, H, D);
    for _ in 0..1000 {
        t.enter(Call::SessionRun, &[H]);
    }
    let session = t.process().session(1).unwrap();
    assert_eq!((session.runs, session.running), (1000, 64));
    assert_eq!(t.process().anomalies.unpaired_calls, 1000 - 64);
}

#[test]
fn the_owner_of_an_allocation() {
    let mut t = Trace::new();
    open(&mut t, 0x1, 0xd1);
    open(&mut t, 0x2, 0xd2);
    t.chunk_by(0x10, 5, 0);
    assert_eq!(t.owner(0x10), None, "nobody runs");

    t.on(1).enter(Call::SessionRun, &[0x1]);
    t.chunk_by(0x20, 0, 0);
    assert_eq!(t.owner(0x20), Some(1), "on the thread that runs");
    t.on(9).chunk_by(0x30, 5, 0);
    assert_eq!(t.owner(0x30), Some(1), "the only one that runs");
    t.chunk_by(0x40, 0, 0);
    assert_eq!(t.owner(0x40), None, "no op said that it works for a run");

    t.on(2).enter(Call::SessionRun, &[0x2]);
    t.enter(Call::DirectSessionStep, &[0xd2, 77]);
    t.on(9).chunk_by(0x50, 5, 0);
    assert_eq!(t.owner(0x50), None, "two run");
    t.chunk_by(0x60, 5, 77);
    assert_eq!(t.owner(0x60), Some(2), "by the step");
    t.on(1).chunk_by(0x70, 5, 77);
    assert_eq!(t.owner(0x70), Some(1), "the thread says more than the step");

    t.on(2).leave(Call::SessionRun, 0);
    t.on(9).chunk_by(0x80, 5, 0);
    assert_eq!(t.owner(0x80), Some(1));
    t.on(3).enter(Call::SessionRun, &[0xfff]);
    t.on(9).chunk_by(0x90, 5, 0);
    assert_eq!(t.owner(0x90), None, "a session nobody saw opened runs too");
    t.on(3).chunk_by(0xa0, 5, 77);
    assert_eq!(t.owner(0xa0), None, "its own thread works for it");
}

#[test]
fn the_object_under_a_handle_is_learnt_from_calls() {
    let mut t = Trace::new();
    t.call(Call::NewSession, &[], H);
    assert_eq!(t.process().session(1).unwrap().direct, 0);
    t.enter(Call::SessionRun, &[H]);
    t.enter(Call::DirectSessionStep, &[D, 9]);
    t.leave(Call::SessionRun, 0);
    assert_eq!(t.process().session(1).unwrap().direct, D);
    // The close of the handle was lost; the end of the object tells. The handle itself is still there.
    t.enter(Call::DirectSessionDestroy, &[D]);
    let session = t.process().session(1).unwrap();
    assert!(session.closed.is_some() && session.deleted.is_none());
}

#[test]
fn python_destroys_the_object_inside_the_close_and_deletes_the_handle_later() {
    let mut t = Trace::new();
    t.enter(Call::NewSession, &[]);
    t.enter(Call::DirectSessionNew, &[D]);
    t.leave(Call::NewSession, H);
    t.enter(Call::CloseSession, &[H]);
    t.enter(Call::DirectSessionClose, &[D]);
    t.leave(Call::DirectSessionClose, 0);
    t.enter(Call::DirectSessionDestroy, &[D]);
    t.leave(Call::CloseSession, 0);
    let session = t.process().session(1).unwrap();
    assert!(session.closed.is_some() && session.deleted.is_none());
    t.call(Call::DeleteSession, &[H], 0);
    assert!(t.process().session(1).unwrap().deleted.is_some());
    assert_eq!(t.process().anomalies, Anomalies::default());
}

#[test]
fn graphs_contexts_functions() {
    let mut t = Trace::new();
    t.call(Call::NewGraph, &[], 0x11);
    t.call(Call::NewGraph, &[], 0);
    t.enter(Call::DeleteGraph, &[0x11]);
    t.enter(Call::DeleteGraph, &[0]);
    assert_eq!(t.process().graphs, HandleCount { opened: 1, closed: 1 });

    t.call(Call::NewContext, &[], 0xc0);
    t.call(Call::NewContext, &[], 0);
    assert_eq!(t.enter(Call::ClearCaches, &[0xc0]), [CachesClearing(0xc0)]);
    assert_eq!(t.leave(Call::ClearCaches, 0), [CachesCleared(0xc0)]);
    assert_eq!(t.enter(Call::DeleteContext, &[0xc0]), [ContextDeleting(0xc0)]);
    assert_eq!(t.leave(Call::DeleteContext, 0), [ContextDeleted(0xc0)]);
    assert_eq!(t.process().contexts, HandleCount { opened: 1, closed: 1 });

    t.enter(Call::AddFunction, &[0xc0]);
    t.enter(Call::AddFunction, &[0xc0]);
    t.enter(Call::RemoveFunction, &[0xc0]);
    assert_eq!(t.process().functions, HandleCount { opened: 2, closed: 1 });
    assert_eq!(t.process().anomalies, Anomalies::default());
}
