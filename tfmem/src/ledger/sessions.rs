//! The sessions of a process, from opening to delete. Each change is told once, whatever the calls nest like.

use std::ops::Deref;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::Addr;
use crate::ledger::types::{Change, Session, SessionCounts, SessionId};

/// Sessions in order of their number; reads like a slice.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    list: Vec<Session>,
    by_handle: FxHashMap<Addr, SessionId>,
    by_direct: FxHashMap<Addr, SessionId>,
    /// By their handle on their master.
    by_remote: FxHashMap<Arc<str>, SessionId>,
    last: SessionId,
    /// Sessions with a run under way, and runs under way of handles nobody saw opened.
    busy: Vec<SessionId>,
    pub(super) unknown_running: u32,
    counts: SessionCounts,
}

impl Deref for Sessions {
    type Target = [Session];

    fn deref(&self) -> &[Session] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Sessions {
    type Item = &'a Session;
    type IntoIter = std::slice::Iter<'a, Session>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl Sessions {
    #[must_use]
    pub fn find(&self, id: SessionId) -> Option<&Session> {
        let i = self.list.binary_search_by_key(&id, |s| s.id).ok()?;
        self.list.get(i)
    }

    /// Sessions nobody deleted.
    pub fn open(&self) -> impl Iterator<Item = &Session> {
        self.list.iter().filter(|s| s.deleted.is_none())
    }

    #[must_use]
    pub const fn counts(&self) -> SessionCounts {
        self.counts
    }

    fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let i = self.list.binary_search_by_key(&id, |s| s.id).ok()?;
        self.list.get_mut(i)
    }

    pub(super) fn by_handle(&self, handle: Addr) -> Option<SessionId> {
        self.by_handle.get(&handle).copied()
    }

    pub(super) fn by_direct(&self, direct: Addr) -> Option<SessionId> {
        self.by_direct.get(&direct).copied()
    }

    pub(super) fn by_remote(&self, handle: &str) -> Option<SessionId> {
        self.by_remote.get(handle).copied()
    }

    /// The number of a session whose opening began.
    pub(super) const fn reserve(&mut self) -> SessionId {
        self.last += 1;
        self.last
    }

    /// The one session with a run under way, when that is certain.
    pub(super) fn only_busy(&self) -> Option<SessionId> {
        match self.busy.as_slice() {
            [id] if self.unknown_running == 0 => Some(*id),
            _ => None,
        }
    }

    pub(super) fn opened(&mut self, opening: Opening, changes: &mut Vec<Change>) {
        let Opening { id, handle, direct, remote, at, tid, saved_model } = opening;
        let session = Session {
            id,
            handle,
            direct,
            remote,
            remote_handle: None,
            tid,
            opened: at,
            closing: None,
            closed: None,
            deleting: None,
            deleted: None,
            saved_model,
            runs: 0,
            running: 0,
        };
        if handle != 0 {
            self.by_handle.insert(handle, id);
        }
        if direct != 0 {
            self.by_direct.insert(direct, id);
        }
        // Two threads may open at once and finish in the other order.
        let i = self.list.partition_point(|s| s.id < id);
        self.list.insert(i, session);
        self.counts.opened += 1;
        changes.push(Change::SessionOpened(id));
    }

    /// The `DirectSession` under a session is known now, from a call on it inside a call on the handle.
    pub(super) fn learn_direct(&mut self, id: SessionId, direct: Addr) {
        if direct != 0
            && !self.by_direct.contains_key(&direct)
            && let Some(session) = self.get_mut(id)
            && session.direct == 0
            && session.deleting.is_none()
        {
            session.direct = direct;
            self.by_direct.insert(direct, id);
        }
    }

    /// The session has this handle on its master. A handle never changes.
    pub(super) fn named(&mut self, id: SessionId, handle: &Arc<str>) {
        if let Some(session) = self.get_mut(id)
            && session.remote_handle.is_none()
        {
            session.remote = true;
            session.remote_handle = Some(handle.clone());
            self.by_remote.insert(handle.clone(), id);
        }
    }

    /// The `DirectSession` is gone: its address may be another's from now on.
    pub(super) fn forget_direct(&mut self, id: SessionId) {
        let Some(session) = self.get_mut(id) else { return };
        let direct = std::mem::take(&mut session.direct);
        remove_if(&mut self.by_direct, direct, id);
    }

    pub(super) fn begin_close(&mut self, id: SessionId, at: u64, changes: &mut Vec<Change>) {
        if let Some(session) = self.get_mut(id)
            && session.closing.is_none()
        {
            session.closing = Some(at);
            changes.push(Change::SessionClosing(id));
        }
    }

    pub(super) fn end_close(&mut self, id: SessionId, at: u64, changes: &mut Vec<Change>) {
        self.begin_close(id, at, changes);
        if let Some(session) = self.get_mut(id)
            && session.closed.is_none()
        {
            session.closed = Some(at);
            self.counts.closed += 1;
            changes.push(Change::SessionClosed(id));
        }
    }

    /// A delete closes a session that was not closed before.
    pub(super) fn begin_delete(&mut self, id: SessionId, at: u64, changes: &mut Vec<Change>) {
        self.begin_close(id, at, changes);
        let Some(session) = self.get_mut(id) else { return };
        if session.deleting.is_none() {
            session.deleting = Some(at);
            // The address is given back inside the call and may be another session's before the call returns.
            let handle = session.handle;
            remove_if(&mut self.by_handle, handle, id);
            changes.push(Change::SessionDeleting(id));
        }
    }

    pub(super) fn end_delete(&mut self, id: SessionId, at: u64, changes: &mut Vec<Change>) {
        self.begin_delete(id, at, changes);
        if self.find(id).is_none_or(|s| s.deleted.is_some()) {
            return;
        }
        self.end_close(id, at, changes);
        self.forget_direct(id);
        if let Some(session) = self.get_mut(id) {
            session.deleted = Some(at);
            // No run survives the delete: returns that were lost must not keep it busy.
            session.running = 0;
            self.counts.deleted += 1;
            changes.push(Change::SessionDeleted(id));
        }
        self.busy.retain(|&b| b != id);
    }

    pub(super) fn run_begins(&mut self, id: SessionId) {
        let Some(session) = self.get_mut(id) else { return };
        session.runs += 1;
        session.running += 1;
        if session.running == 1 {
            self.busy.push(id);
        }
    }

    /// A run told by its step alone: its end is not seen.
    pub(super) fn stepped(&mut self, id: SessionId) {
        if let Some(session) = self.get_mut(id) {
            session.runs += 1;
        }
    }

    pub(super) fn run_ends(&mut self, id: SessionId) {
        let Some(session) = self.get_mut(id) else { return };
        session.running = session.running.saturating_sub(1);
        if session.running == 0 {
            self.busy.retain(|&b| b != id);
        }
    }

    /// Another program took the process over: no session is left, the counts go on.
    pub(super) fn dropped(&mut self) {
        *self = Self { last: self.last, counts: self.counts, ..Self::default() };
    }
}

/// What is known of a session when its opening succeeded.
pub(super) struct Opening {
    pub id: SessionId,
    pub handle: Addr,
    pub direct: Addr,
    pub remote: bool,
    pub at: u64,
    pub tid: u32,
    pub saved_model: Option<Arc<str>>,
}

fn remove_if(map: &mut FxHashMap<Addr, SessionId>, key: Addr, id: SessionId) {
    if map.get(&key) == Some(&id) {
        map.remove(&key);
    }
}
