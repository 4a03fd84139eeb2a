//! Sessions on servers: clients, workers, masters, servers.

use std::sync::Arc;

use super::{POOL, Trace};
use crate::event::{Body, Call, Origin};
use crate::ledger::distributed::FIRST_WORKER_SESSION;
use crate::ledger::types::Change;

const HANDLE: &str = "00112233445566aa";
const OTHER: &str = "ffffffffffffffff";
const FIRST: u64 = FIRST_WORKER_SESSION + 1;

impl Trace {
    fn says(&mut self, call: Call, args: &[u64], text: &str) -> Vec<Change> {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.push(Body::Enter { call, args: all, text: Some(Arc::from(text)) })
    }

    fn graph(&mut self, handle: &str) {
        self.says(Call::WorkerGraphNew, &[], handle);
        self.leave(Call::WorkerGraphNew, 1);
    }

    fn graph_gone(&mut self, handle: &str) -> Vec<Change> {
        let mut changes = self.says(Call::WorkerGraphGone, &[], handle);
        changes.extend(self.leave(Call::WorkerGraphGone, 0));
        changes
    }

    /// A client's session with its `GrpcSession`, run once on this thread.
    fn client(&mut self, handle: u64, name: &str) {
        self.enter(Call::NewSession, &[]);
        self.enter(Call::GrpcSessionNew, &[handle + 1]);
        self.leave(Call::NewSession, handle);
        self.enter(Call::SessionRun, &[handle]);
        self.says(Call::RemoteHandle, &[0x77], name);
        self.leave(Call::SessionRun, 0);
    }
}

#[test]
fn a_client_learns_its_handle_when_it_runs() {
    let mut t = Trace::new();
    t.client(0x10, HANDLE);
    let session = t.process().session(1).unwrap();
    assert_eq!((session.remote, session.remote_handle.as_deref(), session.direct), (true, Some(HANDLE), 0x11));
    // A second name is a mistake of somebody's; outside of a run nobody is named.
    t.says(Call::RemoteHandle, &[], OTHER);
    t.enter(Call::SessionRun, &[0x10]);
    t.says(Call::RemoteHandle, &[], OTHER);
    t.leave(Call::SessionRun, 0);
    assert_eq!(t.process().session(1).unwrap().remote_handle.as_deref(), Some(HANDLE));

    let mut changes = t.enter(Call::CloseSession, &[0x10]);
    changes.extend(t.call(Call::GrpcSessionClose, &[0x11], 0));
    changes.extend(t.leave(Call::CloseSession, 0));
    assert_eq!(changes, [Change::SessionClosing(1), Change::SessionClosed(1)]);
    let mut changes = t.enter(Call::DeleteSession, &[0x10]);
    changes.extend(t.enter(Call::GrpcSessionDestroy, &[0x11]));
    changes.extend(t.leave(Call::DeleteSession, 0));
    assert_eq!(changes, [Change::SessionDeleting(1), Change::SessionDeleted(1)]);
    assert_eq!(t.process().anomalies, crate::ledger::types::Anomalies::default());
}

#[test]
fn a_worker_session_ends_with_its_last_graph() {
    let mut t = Trace::new();
    t.graph(HANDLE);
    t.graph(HANDLE);
    t.graph(OTHER);
    assert_eq!(t.graph_gone(HANDLE), []);
    assert_eq!(t.graph_gone(HANDLE), [Change::WorkerSessionDeleting(FIRST), Change::WorkerSessionDeleted(FIRST)]);
    let p = t.process();
    assert_eq!((p.worker_sessions.counts.opened, p.worker_sessions.counts.closed), (2, 1));
    assert!(p.sessions.is_empty() && p.serves());
}

#[test]
fn one_that_the_worker_was_told_to_open_ends_with_its_delete() {
    let mut t = Trace::new();
    // Overloads call each other.
    t.says(Call::WorkerSessionCreate, &[], HANDLE);
    t.says(Call::WorkerSessionCreate, &[], HANDLE);
    t.graph(HANDLE);
    let mut changes = t.says(Call::WorkerSessionDelete, &[], HANDLE);
    changes.extend(t.graph_gone(HANDLE));
    changes.extend(t.leave(Call::WorkerSessionDelete, 0));
    assert_eq!(changes, [Change::WorkerSessionDeleting(FIRST), Change::WorkerSessionDeleted(FIRST)]);
    assert_eq!(t.process().worker_sessions.counts.opened, 1);
}

#[test]
fn a_session_that_is_heard_of_again_had_not_ended() {
    let mut t = Trace::new();
    t.graph(HANDLE);
    t.graph_gone(HANDLE);
    assert_eq!(t.says(Call::WorkerGraphNew, &[], HANDLE), [Change::WorkerSessionReopened(FIRST)]);
    t.leave(Call::WorkerGraphNew, 0);
    let p = t.process();
    assert_eq!((p.worker_sessions.counts.opened, p.worker_sessions.counts.closed), (1, 0));
    assert_eq!(t.graph_gone(HANDLE).len(), 2);
}

#[test]
fn a_session_from_before_the_trace_ends_once() {
    let mut t = Trace::new();
    assert_eq!(t.graph_gone(HANDLE).len(), 2);
    assert_eq!(t.graph_gone(HANDLE), []);
    let mut changes = t.says(Call::WorkerSessionDelete, &[], OTHER);
    changes.extend(t.leave(Call::WorkerSessionDelete, 0));
    assert_eq!(changes.len(), 2);
}

#[test]
fn memory_of_steps_and_of_graphs_is_the_sessions() {
    let mut t = Trace::new();
    t.says(Call::WorkerGraphNew, &[], HANDLE);
    t.chunk_by(0x100, 7, 0);
    t.leave(Call::WorkerGraphNew, 0);
    t.says(Call::WorkerStep, &[1, 2, 99, 3], HANDLE);
    t.on(5).chunk_by(0x200, 7, 99);
    t.chunk_by(0x300, 7, 98);
    t.push(Body::ChunkAlloc { pool: POOL, addr: 0x400, requested: 8, bytes: 8, origin: Origin::default() });
    let owners: Vec<_> = [0x100, 0x200, 0x300, 0x400].map(|a| t.owner(a)).to_vec();
    assert_eq!(owners, [Some(FIRST), Some(FIRST), None, None]);
    assert_eq!(t.process().worker_sessions.find(FIRST).unwrap().steps, 1);
}

#[test]
fn in_the_clients_own_process_the_memory_is_the_clients() {
    let mut t = Trace::new();
    t.client(0x10, HANDLE);
    t.on(2).says(Call::WorkerGraphNew, &[], HANDLE);
    t.chunk_by(0x100, 7, 0);
    t.leave(Call::WorkerGraphNew, 0);
    t.says(Call::WorkerStep, &[1, 2, 99, 3], HANDLE);
    t.on(3).chunk_by(0x200, 7, 99);
    assert_eq!([t.owner(0x100), t.owner(0x200)], [Some(1), Some(1)]);
}

/// On a server the only session that runs here is not the only one that may run.
#[test]
fn a_server_does_not_guess_whose_a_step_is() {
    let mut t = Trace::new();
    t.client(0x10, HANDLE);
    t.enter(Call::SessionRun, &[0x10]);
    t.on(2).chunk_by(0x100, 7, 50);
    assert_eq!(t.owner(0x100), Some(1));
    t.call(Call::NewServer, &[], 0x900);
    t.chunk_by(0x200, 7, 50);
    assert_eq!(t.owner(0x200), None);
}

#[test]
fn servers_stop_once_and_are_deleted() {
    let mut t = Trace::new();
    t.call(Call::NewServer, &[], 0);
    t.call(Call::NewServer, &[], 0x900);
    let mut changes = t.enter(Call::ServerStop, &[0x900]);
    changes.extend(t.call(Call::GrpcServerStop, &[0x901], 0));
    changes.extend(t.leave(Call::ServerStop, 0));
    assert_eq!(changes, [Change::ServerStopping(1), Change::ServerStopped(1)]);
    let mut changes = t.enter(Call::DeleteServer, &[0x900]);
    changes.extend(t.enter(Call::GrpcServerDestroy, &[0x901]));
    changes.extend(t.call(Call::GrpcServerStop, &[0x901], 0));
    changes.extend(t.leave(Call::DeleteServer, 0));
    assert_eq!(changes, []);
    let p = t.process();
    assert_eq!((p.servers.counts.opened, p.servers.counts.closed), (1, 1));
    assert!(!p.serves());
    // Its address may be another's.
    t.call(Call::NewServer, &[], 0x900);
    assert_eq!(t.call(Call::DeleteServer, &[0x900], 0), [Change::ServerStopping(2), Change::ServerStopped(2)]);
}

#[test]
fn masters_are_counted_and_an_exec_forgets_all() {
    let mut t = Trace::new();
    t.enter(Call::MasterSessionNew, &[0x50]);
    t.enter(Call::MasterSessionNew, &[0x50]);
    t.call(Call::MasterSessionClose, &[0x50], 0);
    t.enter(Call::MasterSessionDestroy, &[0x50]);
    t.enter(Call::MasterSessionDestroy, &[0x50]);
    t.graph(HANDLE);
    t.call(Call::NewServer, &[], 0x900);
    t.call(Call::Reset, &[0, 0, 0], 0);
    t.enter(Call::WorkerCleanup, &[1]);
    let p = t.process();
    assert_eq!((p.masters.counts.opened, p.masters.counts.closed, p.resets, p.cleanups), (1, 1, 1, 1));
    t.push(Body::Exec);
    let p = t.process();
    assert!(!p.serves() && p.last_cleanup.is_none());
    assert_eq!((p.worker_sessions.counts.opened, p.servers.counts.opened), (1, 1));
}
