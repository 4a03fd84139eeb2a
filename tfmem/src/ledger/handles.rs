//! Calls of a process: sessions, graphs, contexts, functions and pools open and close, and memory gets its owner.

use std::sync::Arc;

use crate::event::{Addr, Call, Event, Origin};
use crate::ledger::calls::{Frame, MAX_DEPTH, calls_back, entry_only, from_program};
use crate::ledger::process::Process;
use crate::ledger::sessions::Opening;
use crate::ledger::types::{Change, Pool, SessionId};
use crate::names;

/// Names of functions remembered.
const MOST_NAMES: usize = 4096;

impl Process {
    pub(super) fn enter(
        &mut self,
        event: &Event,
        call: Call,
        args: &[u64; 6],
        text: Option<&Arc<str>>,
        changes: &mut Vec<Change>,
    ) {
        let arg = args[0];
        match call {
            Call::PoolNew => {
                self.pool_new(&Pool {
                    addr: arg,
                    name: text.cloned(),
                    limit: args[2],
                    opened: event.at,
                    regions: Vec::new(),
                    chunks: 0,
                    in_use: 0,
                    peak_in_use: 0,
                    handed_out: 0,
                    handed_out_bytes: 0,
                    extended: 0,
                    seeded: false,
                });
            }
            Call::PoolDestroy => self.pool_destroy(arg),
            // The regions it gives back are told one by one, as heap blocks.
            Call::PoolDeallocateRegions => {}
            Call::AddFunction => self.functions.opened += 1,
            Call::RemoveFunction => self.function_removed(text),
            Call::DeleteGraph => self.graphs.closed += u64::from(arg != 0),
            Call::DirectSessionNew | Call::GrpcSessionNew => {
                self.direct_new(event, arg, call == Call::GrpcSessionNew, changes);
            }
            Call::RemoteHandle => self.remote_handle(event.tid, text),
            Call::DirectSessionDestroy | Call::GrpcSessionDestroy => self.direct_gone(event, arg, changes),
            Call::DirectSessionStep => self.direct_step(event, arg, args[1].cast_signed()),
            _ if entry_only(call) => self.told_by_entry(event, call, args, text, changes),
            _ => self.push(event, call, arg, text, changes),
        }
    }

    fn function_removed(&mut self, name: Option<&Arc<str>>) {
        self.functions.closed += 1;
        // One for gradients goes with the trace that it is of.
        let trace = name.filter(|name| name.starts_with("__inference_")).map(|name| names::function(name));
        if let Some(trace) = trace
            && (self.functions_removed.len() < MOST_NAMES || self.functions_removed.contains_key(trace))
        {
            *self.functions_removed.entry(trace.to_owned()).or_default() += 1;
        }
    }

    fn push(&mut self, event: &Event, call: Call, arg: u64, text: Option<&Arc<str>>, changes: &mut Vec<Change>) {
        let (at, tid) = (event.at, event.tid);
        if from_program(call) {
            self.lost_returns(event, changes);
        } else if call == Call::PoolExtend {
            self.lost_extend(event, arg, changes);
        }
        let session = match call {
            Call::NewSession | Call::LoadSavedModel => Some(self.sessions.reserve()),
            Call::CloseSession | Call::DeleteSession | Call::SessionRun => {
                let session = self.sessions.by_handle(arg);
                self.anomalies.unknown_handles += u64::from(session.is_none());
                session
            }
            Call::DirectSessionClose | Call::GrpcSessionClose => self.direct_close(tid, arg),
            _ => None,
        };
        match (call, session) {
            (Call::CloseSession | Call::DirectSessionClose | Call::GrpcSessionClose, Some(id)) => {
                self.sessions.begin_close(id, at, changes);
            }
            (Call::DeleteSession, Some(id)) => self.sessions.begin_delete(id, at, changes),
            (Call::SessionRun, Some(id)) => self.sessions.run_begins(id),
            (Call::SessionRun, None) => self.sessions.unknown_running += 1,
            (Call::DeleteContext, _) if arg != 0 => changes.push(Change::ContextDeleting(arg)),
            (Call::ClearCaches, _) => changes.push(Change::CachesClearing(arg)),
            _ => {}
        }
        let about = self.begin_distributed(event, call, arg, text, changes);
        let text = if call == Call::LoadSavedModel { text.cloned() } else { None };
        let frame = Frame { call, at, arg, session, direct: 0, remote: false, about, text, regions: Vec::new() };
        let stack = &mut self.threads.entry(tid).or_default().stack;
        stack.push(frame);
        if stack.len() > MAX_DEPTH {
            let oldest = stack.remove(0);
            self.abandon(event, oldest, changes);
        }
    }

    /// A call of the program cannot come from inside most others: those have returned, and nobody saw it.
    fn lost_returns(&mut self, event: &Event, changes: &mut Vec<Change>) {
        while let Some(thread) = self.threads.get_mut(&event.tid)
            && let Some(frame) = thread.stack.pop_if(|f| !calls_back(f.call))
        {
            self.abandon(event, frame, changes);
        }
    }

    /// A pool does not extend while it extends and hands out nothing meanwhile: seen inside, the return was lost. It
    /// must not turn every later block of the thread into a region.
    pub(super) fn lost_extend(&mut self, event: &Event, pool: Addr, changes: &mut Vec<Change>) {
        while let Some(thread) = self.threads.get_mut(&event.tid)
            && let Some(frame) = thread.stack.pop_if(|f| f.call == Call::PoolExtend && f.arg == pool)
        {
            self.abandon(event, frame, changes);
        }
    }

    pub(super) fn leave(&mut self, event: &Event, call: Call, ret: u64, changes: &mut Vec<Change>) {
        if entry_only(call) {
            return;
        }
        let stack = self.threads.get(&event.tid).map_or(&[][..], |t| t.stack.as_slice());
        let Some(depth) = stack.iter().rposition(|f| f.call == call) else {
            self.left_unentered(event, call, ret, changes);
            return;
        };
        while let Some(frame) = self.threads.get_mut(&event.tid).and_then(|t| t.stack.pop()) {
            if self.threads.get(&event.tid).is_some_and(|t| t.stack.len() > depth) {
                self.abandon(event, frame, changes);
            } else {
                self.finish(event, frame, Some(ret), changes);
                break;
            }
        }
    }

    /// A return without its entry. What it returned is there all the same.
    fn left_unentered(&mut self, event: &Event, call: Call, ret: u64, changes: &mut Vec<Change>) {
        if self.inherited_calls > 0 {
            self.inherited_calls -= 1;
            return;
        }
        self.anomalies.unpaired_calls += 1;
        let opens = matches!(call, Call::NewSession | Call::LoadSavedModel);
        if ret != 0 && (opens || matches!(call, Call::NewGraph | Call::NewContext | Call::NewServer)) {
            let session = opens.then(|| self.sessions.reserve());
            let frame = Frame {
                call,
                at: event.at,
                arg: 0,
                session,
                direct: 0,
                remote: false,
                about: None,
                text: None,
                regions: Vec::new(),
            };
            self.finish(event, frame, Some(ret), changes);
        }
    }

    pub(super) fn thread_exit(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let Some(thread) = self.threads.remove(&event.tid) else { return };
        for frame in thread.stack.into_iter().rev() {
            self.abandon(event, frame, changes);
        }
    }

    /// The call is over, and its return was not seen.
    fn abandon(&mut self, event: &Event, frame: Frame, changes: &mut Vec<Change>) {
        self.anomalies.unpaired_calls += 1;
        self.finish(event, frame, None, changes);
    }

    fn finish(&mut self, event: &Event, frame: Frame, ret: Option<u64>, changes: &mut Vec<Change>) {
        let at = event.at;
        let returned = ret.is_some_and(|r| r != 0);
        match (frame.call, frame.session) {
            (Call::NewSession | Call::LoadSavedModel, Some(id)) => {
                let handle = ret.unwrap_or(0);
                // A return that was lost has no handle; the object made inside tells that there is a session.
                if handle != 0 || (ret.is_none() && frame.direct != 0) {
                    let Frame { direct, remote, text: saved_model, .. } = frame;
                    let opening = Opening { id, handle, direct, remote, at: frame.at, tid: event.tid, saved_model };
                    self.open(event, opening, changes);
                }
            }
            (Call::CloseSession | Call::DirectSessionClose | Call::GrpcSessionClose, Some(id))
                if !self.closes(event.tid, id) =>
            {
                self.sessions.end_close(id, at, changes);
            }
            (Call::DeleteSession, Some(id)) => self.sessions.end_delete(id, at, changes),
            (Call::SessionRun, Some(id)) => self.sessions.run_ends(id),
            (Call::SessionRun, None) => {
                self.sessions.unknown_running = self.sessions.unknown_running.saturating_sub(1);
            }
            (Call::NewGraph, _) => self.graphs.opened += u64::from(returned),
            (Call::NewContext, _) => self.contexts.opened += u64::from(returned),
            (Call::DeleteContext, _) if frame.arg != 0 => {
                self.contexts.closed += 1;
                changes.push(Change::ContextDeleted(frame.arg));
            }
            (Call::ClearCaches, _) => changes.push(Change::CachesCleared(frame.arg)),
            // It returns a bool: the upper bits of the register mean nothing.
            (Call::PoolExtend, _) if ret.is_some_and(|r| r & 0xff == 0) => {
                self.extend_failed(frame.arg, &frame.regions);
            }
            (call, _) => self.end_distributed(at, call, frame.about, ret.unwrap_or(0), changes),
        }
    }

    /// Whether the thread is still inside a close of this session: the outermost one tells that it is closed.
    fn closes(&self, tid: u32, id: SessionId) -> bool {
        self.stack(tid).iter().any(|f| f.call == Call::CloseSession && f.session == Some(id))
    }

    fn open(&mut self, event: &Event, opening: Opening, changes: &mut Vec<Change>) {
        let same_handle = self.sessions.by_handle(opening.handle);
        let same_direct = self.sessions.by_direct(opening.direct).filter(|id| Some(*id) != same_handle);
        for id in same_handle.into_iter().chain(same_direct) {
            if self.sessions.find(id).is_some_and(|s| s.deleting.is_some()) {
                // Its delete is under way in another thread and has given the address back already.
                self.sessions.forget_direct(id);
            } else {
                self.anomalies.reused_alive += 1;
                self.sessions.end_delete(id, event.at, changes);
            }
        }
        self.sessions.opened(opening, changes);
    }

    fn direct_new(&mut self, event: &Event, direct: Addr, remote: bool, changes: &mut Vec<Change>) {
        let alive = self.sessions.by_direct(direct).is_some();
        let thread = self.threads.entry(event.tid).or_default();
        // The complete constructor calls the base one. Not so when the object has gone since, on another thread.
        let again = std::mem::replace(&mut thread.last_made, direct) == direct && alive;
        thread.last_gone = 0;
        if let Some(frame) = thread.stack.iter_mut().rfind(|f| f.opens_session()) {
            frame.direct = direct;
            frame.remote = remote;
        } else if !again {
            let id = self.sessions.reserve();
            let opening = Opening { id, handle: 0, direct, remote, at: event.at, tid: event.tid, saved_model: None };
            self.open(event, opening, changes);
        }
    }

    /// The destructor was entered. Inside a delete of the handle that is where the object goes; without a handle it is
    /// the delete itself, and it is over: no return will be seen.
    fn direct_gone(&mut self, event: &Event, direct: Addr, changes: &mut Vec<Change>) {
        let thread = self.threads.entry(event.tid).or_default();
        thread.last_made = 0;
        let again = std::mem::replace(&mut thread.last_gone, direct) == direct;
        if let Some(frame) = thread.stack.iter_mut().rfind(|f| f.opens_session() && f.direct == direct) {
            frame.direct = 0;
            return;
        }
        let deleting = thread.stack.iter().rfind(|f| f.call == Call::DeleteSession).map(|f| f.session);
        match (self.sessions.by_direct(direct), deleting) {
            (Some(id), Some(Some(inside))) if id == inside => self.sessions.forget_direct(id),
            (Some(id), _) if self.sessions.find(id).is_some_and(|s| s.handle != 0) => {
                self.object_gone(event, id, changes);
            }
            (Some(id), _) => self.sessions.end_delete(id, event.at, changes),
            (None, None) if !again => self.anomalies.unknown_handles += 1,
            (None, _) => {}
        }
    }

    /// The object under a handle is gone, the handle is not: Python's `Session.close()` destroys the object inside
    /// `TF_CloseSession` and calls `TF_DeleteSession` when its own object goes.
    fn object_gone(&mut self, event: &Event, id: SessionId, changes: &mut Vec<Change>) {
        self.sessions.forget_direct(id);
        if !self.closes(event.tid, id) {
            self.sessions.end_close(id, event.at, changes);
        }
    }

    /// The session that a close of the object closes.
    fn direct_close(&mut self, tid: u32, direct: Addr) -> Option<SessionId> {
        if let Some(id) = self.sessions.by_direct(direct) {
            return Some(id);
        }
        let inside = self.stack(tid).iter().rfind(|f| f.ends_session()).map(|f| f.session);
        if let Some(Some(id)) = inside {
            self.sessions.learn_direct(id, direct);
            return Some(id);
        }
        // Known to be unknown: the call around it was counted, or its destructor or failed opening is under way.
        let told = inside.is_some()
            || self.threads.get(&tid).is_some_and(|t| t.last_gone == direct)
            || self.stack(tid).iter().any(Frame::opens_session);
        self.anomalies.unknown_handles += u64::from(!told);
        None
    }

    /// The thread names the session it runs to the session's master.
    fn remote_handle(&mut self, tid: u32, text: Option<&Arc<str>>) {
        let running = self.stack(tid).iter().rfind(|f| f.call == Call::SessionRun).and_then(|f| f.session);
        if let (Some(id), Some(handle)) = (running, text) {
            self.sessions.named(id, handle);
        }
    }

    fn direct_step(&mut self, event: &Event, direct: Addr, step: i64) {
        let tid = event.tid;
        let around = self.stack(tid).iter().rfind(|f| f.call == Call::SessionRun || f.opens_session());
        let running = around.is_some_and(|f| f.call == Call::SessionRun);
        let around = around.map(|f| f.session);
        if let Some(Some(id)) = around {
            self.sessions.learn_direct(id, direct);
        }
        let session = around.flatten().or_else(|| self.sessions.by_direct(direct));
        match session {
            Some(id) => {
                self.steps.insert(step, id, event.stack);
                if !running {
                    self.sessions.stepped(id);
                }
            }
            None => self.anomalies.unknown_handles += u64::from(around.is_none()),
        }
    }

    fn stack(&self, tid: u32) -> &[Frame] {
        self.threads.get(&tid).map_or(&[], |t| t.stack.as_slice())
    }

    /// The pool that the thread is extending; `block` becomes a region of it.
    pub(super) fn extending(&mut self, tid: u32, block: Addr) -> Option<Addr> {
        let stack = &mut self.threads.get_mut(&tid)?.stack;
        let frame = stack.iter_mut().rfind(|f| f.call == Call::PoolExtend)?;
        frame.regions.push(block);
        Some(frame.arg)
    }

    /// The session whose work this is: that of the call the thread is inside of, else that of the step, else the
    /// only one with a run under way.
    pub(super) fn owner(&self, tid: u32, origin: &Origin) -> Option<SessionId> {
        let tells = |f: &&Frame| f.call == Call::SessionRun || f.opens_session() || f.call == Call::WorkerGraphNew;
        if let Some(frame) = self.stack(tid).iter().rfind(tells) {
            return self.registering(frame).or(frame.session);
        }
        if origin.op == 0 {
            return None;
        }
        self.steps.get(origin.step).or_else(|| {
            // Where others' sessions run too, a step of nobody's may be theirs.
            (!self.serves()).then(|| self.sessions.only_busy()).flatten()
        })
    }
}
