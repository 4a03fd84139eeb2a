//! What a process does for others: sessions of clients elsewhere on a worker, masters, servers.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{Addr, Call, Event};
use crate::ledger::calls::Frame;
use crate::ledger::process::Process;
use crate::ledger::types::{Change, HandleCount, SessionId};

/// Numbers of worker sessions start here: one space of numbers for all owners of memory, in 32 bits.
pub const FIRST_WORKER_SESSION: SessionId = 1 << 31;

/// Number of a server within its process, from 1, in order of opening.
pub type ServerId = u64;

/// A client's session as a worker knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSession {
    pub id: SessionId,
    /// The session's handle, the same in the client, in the master and on every worker.
    pub handle: Arc<str>,
    /// When the worker first heard of it.
    pub opened: u64,
    /// Opened by `SessionMgr::CreateSession`: it ends by `DeleteSession`, not with its last graph.
    pub created: bool,
    /// Graphs registered and not gone.
    pub graphs: u64,
    pub steps: u64,
    /// When its delete began and ended.
    pub deleting: Option<u64>,
    pub deleted: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct WorkerSessions {
    list: Vec<WorkerSession>,
    by_handle: FxHashMap<Arc<str>, usize>,
    pub counts: HandleCount,
}

impl WorkerSessions {
    pub fn iter(&self) -> impl Iterator<Item = &WorkerSession> {
        self.list.iter()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[must_use]
    pub fn find(&self, id: SessionId) -> Option<&WorkerSession> {
        self.list.get(usize::try_from(id.checked_sub(FIRST_WORKER_SESSION + 1)?).ok()?)
    }

    /// The session with this handle, known from now on. One that had ended and is heard of again had not ended.
    fn meet(&mut self, handle: &Arc<str>, at: u64, changes: &mut Vec<Change>) -> Option<&mut WorkerSession> {
        let next = self.list.len();
        let i = *self.by_handle.entry(handle.clone()).or_insert(next);
        if i == next {
            let id = FIRST_WORKER_SESSION + 1 + next as u64;
            self.list.push(WorkerSession {
                id,
                handle: handle.clone(),
                opened: at,
                created: false,
                graphs: 0,
                steps: 0,
                deleting: None,
                deleted: None,
            });
            self.counts.opened += 1;
        }
        let session = self.list.get_mut(i)?;
        if session.deleting.take().is_some() {
            self.counts.closed -= u64::from(session.deleted.take().is_some());
            changes.push(Change::WorkerSessionReopened(session.id));
        }
        Some(session)
    }

    fn created(&mut self, handle: &Arc<str>, at: u64, changes: &mut Vec<Change>) {
        if let Some(session) = self.meet(handle, at, changes) {
            session.created = true;
        }
    }

    fn graph_registered(&mut self, handle: &Arc<str>, at: u64, changes: &mut Vec<Change>) -> Option<SessionId> {
        let session = self.meet(handle, at, changes)?;
        session.graphs += 1;
        Some(session.id)
    }

    fn begin_delete(&mut self, handle: &Arc<str>, at: u64, changes: &mut Vec<Change>) -> Option<SessionId> {
        // One that the trace did not see opened ends all the same.
        if !self.by_handle.contains_key(handle) {
            self.meet(handle, at, changes)?;
        }
        let session = self.list.get_mut(*self.by_handle.get(handle)?)?;
        if session.deleting.is_some() {
            return None;
        }
        session.deleting = Some(at);
        changes.push(Change::WorkerSessionDeleting(session.id));
        Some(session.id)
    }

    /// A graph goes. With the last one the session has ended on this worker, unless it has a delete of its own.
    fn graph_gone(&mut self, handle: &Arc<str>, at: u64, changes: &mut Vec<Change>) -> Option<SessionId> {
        if let Some(&i) = self.by_handle.get(handle) {
            let session = self.list.get_mut(i)?;
            session.graphs = session.graphs.saturating_sub(1);
            if session.graphs > 0 || session.created {
                return None;
            }
        }
        self.begin_delete(handle, at, changes)
    }

    fn end_delete(&mut self, id: SessionId, at: u64, changes: &mut Vec<Change>) {
        let Some(i) = id.checked_sub(FIRST_WORKER_SESSION + 1).and_then(|i| usize::try_from(i).ok()) else { return };
        if let Some(session) = self.list.get_mut(i)
            && session.deleting.is_some()
            && session.deleted.is_none()
        {
            session.deleted = Some(at);
            self.counts.closed += 1;
            changes.push(Change::WorkerSessionDeleted(id));
        }
    }
}

/// A server in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `TF_Server*`, 0 when made by C++ alone, and the `GrpcServer` under it, 0 when not seen.
    pub handle: Addr,
    pub object: Addr,
    pub opened: Option<u64>,
    /// When its stop began and returned. TensorFlow's grpc server refuses to stop once it was started
    /// (`GrpcServer::Stop`: "Clean shutdown is not currently implemented"), so it may serve on.
    pub stopping: Option<u64>,
    pub stopped: Option<u64>,
    pub deleted: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Servers {
    list: Vec<Server>,
    pub counts: HandleCount,
}

impl Servers {
    pub fn iter(&self) -> impl Iterator<Item = &Server> {
        self.list.iter()
    }

    /// Whether one is there that nobody deleted.
    #[must_use]
    pub fn any_alive(&self) -> bool {
        self.list.iter().any(|s| s.deleted.is_none())
    }

    fn opened(&mut self, handle: Addr, at: u64) {
        self.counts.opened += 1;
        let (opened, object) = (Some(at), 0);
        self.list.push(Server { handle, object, opened, stopping: None, stopped: None, deleted: None });
    }

    /// The living server with this handle or this object, known from now on.
    fn meet(&mut self, handle: Addr, object: Addr) -> Option<usize> {
        let same = |s: &Server| (handle != 0 && s.handle == handle) || (object != 0 && s.object == object);
        let found = self.list.iter().rposition(|s| s.deleted.is_none() && same(s));
        found.or_else(|| {
            self.list.push(Server { handle, object, opened: None, stopping: None, stopped: None, deleted: None });
            self.list.len().checked_sub(1)
        })
    }

    fn begin_stop(&mut self, i: usize, at: u64, changes: &mut Vec<Change>) -> ServerId {
        let id = i as ServerId + 1;
        if let Some(server) = self.list.get_mut(i)
            && server.stopping.is_none()
        {
            server.stopping = Some(at);
            changes.push(Change::ServerStopping(id));
        }
        id
    }

    fn end_stop(&mut self, id: ServerId, at: u64, changes: &mut Vec<Change>) {
        if let Some(server) = self.get_mut(id)
            && server.stopping.is_some()
            && server.stopped.is_none()
        {
            server.stopped = Some(at);
            self.counts.closed += 1;
            changes.push(Change::ServerStopped(id));
        }
    }

    fn deleted(&mut self, id: ServerId, at: u64) {
        if let Some(server) = self.get_mut(id) {
            server.deleted.get_or_insert(at);
        }
    }

    fn get_mut(&mut self, id: ServerId) -> Option<&mut Server> {
        self.list.get_mut(usize::try_from(id.checked_sub(1)?).ok()?)
    }
}

/// Sessions of a master, by the address of the object, and counts.
#[derive(Clone, Debug, Default)]
pub struct Masters {
    alive: Vec<Addr>,
    pub counts: HandleCount,
}

impl Masters {
    fn made(&mut self, object: Addr) {
        if !self.alive.contains(&object) {
            self.alive.push(object);
            self.counts.opened += 1;
        }
    }

    fn gone(&mut self, object: Addr) {
        if let Some(i) = self.alive.iter().position(|&a| a == object) {
            self.alive.swap_remove(i);
            self.counts.closed += 1;
        }
    }
}

impl Process {
    /// Whether it works for clients elsewhere: what it allocates may be anybody's.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.servers.any_alive() || !self.worker_sessions.is_empty()
    }

    /// Whose memory a worker session's is: in the process of its client the session itself is the better name.
    fn owner_of_served(&self, id: SessionId) -> SessionId {
        self.worker_sessions.find(id).and_then(|s| self.sessions.by_remote(&s.handle)).unwrap_or(id)
    }

    /// The session whose graph the thread is registering: its kernels are made then, and its constants with them.
    pub(super) fn registering(&self, frame: &Frame) -> Option<SessionId> {
        (frame.call == Call::WorkerGraphNew).then_some(frame.about).flatten().map(|id| self.owner_of_served(id))
    }

    /// Calls that only their entry tells of.
    pub(super) fn told_by_entry(
        &mut self,
        event: &Event,
        call: Call,
        args: &[u64; 6],
        text: Option<&Arc<str>>,
        changes: &mut Vec<Change>,
    ) {
        let at = event.at;
        match (call, text) {
            (Call::MasterSessionNew, _) => self.masters.made(args[0]),
            (Call::MasterSessionDestroy, _) => self.masters.gone(args[0]),
            (Call::WorkerSessionCreate, Some(handle)) => self.worker_sessions.created(handle, at, changes),
            (Call::WorkerStep, Some(handle)) => {
                if let Some(session) = self.worker_sessions.meet(handle, at, changes) {
                    session.steps += 1;
                    let id = session.id;
                    self.steps.insert(args[2].cast_signed(), self.owner_of_served(id), None);
                }
            }
            (Call::WorkerCleanup, _) => {
                self.cleanups += 1;
                self.last_cleanup = Some(at);
            }
            (Call::GrpcServerDestroy, _) => {
                let inside = self.server_around(event.tid);
                if inside.is_none()
                    && let Some(i) = self.servers.meet(0, args[0])
                {
                    let id = self.servers.begin_stop(i, at, changes);
                    self.servers.end_stop(id, at, changes);
                    self.servers.deleted(id, at);
                }
            }
            _ => {}
        }
    }

    /// What a call with a return is about: a worker session or a server.
    pub(super) fn begin_distributed(
        &mut self,
        event: &Event,
        call: Call,
        arg: u64,
        text: Option<&Arc<str>>,
        changes: &mut Vec<Change>,
    ) -> Option<u64> {
        let at = event.at;
        match call {
            Call::WorkerGraphNew => self.worker_sessions.graph_registered(text?, at, changes),
            Call::WorkerSessionDelete => self.worker_sessions.begin_delete(text?, at, changes),
            Call::WorkerGraphGone => self.worker_sessions.graph_gone(text?, at, changes),
            Call::ServerStop | Call::DeleteServer => {
                let i = self.servers.meet(arg, 0)?;
                Some(self.servers.begin_stop(i, at, changes))
            }
            Call::GrpcServerStop => {
                if let Some(id) = self.server_around(event.tid) {
                    if let Some(server) = self.servers.get_mut(id) {
                        server.object = arg;
                    }
                    return None;
                }
                let i = self.servers.meet(0, arg)?;
                Some(self.servers.begin_stop(i, at, changes))
            }
            _ => None,
        }
    }

    /// The call returned. `about`: what [`Self::begin_distributed`] said.
    pub(super) fn end_distributed(
        &mut self,
        at: u64,
        call: Call,
        about: Option<u64>,
        ret: u64,
        changes: &mut Vec<Change>,
    ) {
        match (call, about) {
            (Call::WorkerSessionDelete | Call::WorkerGraphGone, Some(id)) => {
                self.worker_sessions.end_delete(id, at, changes);
            }
            (Call::ServerStop | Call::GrpcServerStop, Some(id)) => self.servers.end_stop(id, at, changes),
            (Call::DeleteServer, Some(id)) => {
                self.servers.end_stop(id, at, changes);
                self.servers.deleted(id, at);
            }
            (Call::NewServer, _) if ret != 0 => self.servers.opened(ret, at),
            (Call::Reset, _) => self.resets += 1,
            _ => {}
        }
    }

    /// The server whose stop or delete the thread is inside of.
    fn server_around(&self, tid: u32) -> Option<ServerId> {
        let stack = self.threads.get(&tid).map_or(&[][..], |t| t.stack.as_slice());
        stack.iter().rfind(|f| matches!(f.call, Call::ServerStop | Call::DeleteServer)).and_then(|f| f.about)
    }

    pub(super) fn forget_distributed(&mut self) {
        self.worker_sessions = WorkerSessions { counts: self.worker_sessions.counts, ..WorkerSessions::default() };
        self.servers = Servers { counts: self.servers.counts, ..Servers::default() };
        self.masters = Masters { counts: self.masters.counts, ..Masters::default() };
        self.last_cleanup = None;
    }
}
