//! A generator of programs that open, run, close and delete sessions on several threads. It knows what each of their
//! calls must change.

mod script;

use std::collections::{BTreeMap, VecDeque};

use tfmem::event::{Body, Call, Origin};
use tfmem::ledger::types::{Anomalies, Change, HandleCount};

use crate::Rng;

pub const PID: u32 = 500;
const THREADS: u32 = 4;

/// One thing a thread does. Numbers are indices into [`Program::sessions`].
#[derive(Clone, Debug)]
enum Step {
    Open(usize),
    /// The object's constructor, inside an opening or alone.
    Made(usize),
    Ready(usize),
    Opened(usize, bool),
    Gone(usize),
    ObjectClose(usize),
    ObjectClosed(usize),
    Close(usize),
    Closed(usize),
    Delete(usize),
    /// Its addresses may be used again: shortly before the call returns.
    Freed(usize),
    Deleted(usize),
    Run(usize),
    Stepped(usize),
    Ran(usize),
    Unknown(Call),
    UnknownEnds(Call),
    Chunk,
    /// A call of its own, with its return and what it counts.
    Enter(Call),
    Leave(Call),
}

#[derive(Default)]
pub struct Session {
    pub id: u64,
    pub handle: u64,
    pub direct: u64,
    pub saved_model: bool,
    /// Scripts that use it, and whether one is deleting it.
    pub users: u32,
    pub dying: bool,
    pub opened: Option<u64>,
    pub closing: Option<u64>,
    pub closed: Option<u64>,
    pub deleting: Option<u64>,
    pub deleted: Option<u64>,
    pub runs: u64,
    pub running: u32,
}

#[derive(Default)]
struct Thread {
    script: VecDeque<Step>,
    /// Opening, closing and running calls it is inside of; no session: an unknown one.
    inside: Vec<(Call, Option<usize>)>,
}

#[derive(Default)]
pub struct Program {
    pub sessions: Vec<Session>,
    threads: Vec<Thread>,
    handles: Vec<u64>,
    directs: Vec<u64>,
    ids: u64,
    steps: BTreeMap<i64, u64>,
    next_step: i64,
    pub next_chunk: u64,
    unknown_running: u32,
    pub anomalies: Anomalies,
    pub graphs: HandleCount,
    pub contexts: HandleCount,
    pub functions: HandleCount,
    pub at: u64,
}

impl Program {
    pub fn new() -> Self {
        Self {
            threads: (0..THREADS).map(|_| Thread::default()).collect(),
            handles: (1..7).map(|i| 0x100 * i).collect(),
            directs: (1..9).map(|i| 0x10000 * i).collect(),
            next_step: 1,
            ..Self::default()
        }
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn closing(&mut self, s: usize, changes: &mut Vec<Change>) {
        let session = &mut self.sessions[s];
        if session.opened.is_some() && session.closing.is_none() {
            session.closing = Some(self.at);
            changes.push(Change::SessionClosing(session.id));
        }
    }

    fn closed(&mut self, s: usize, changes: &mut Vec<Change>) {
        let session = &mut self.sessions[s];
        if session.opened.is_some() && session.closed.is_none() {
            session.closed = Some(self.at);
            changes.push(Change::SessionClosed(session.id));
        }
    }

    fn owner(&self, t: usize, origin: &Origin) -> Option<u64> {
        let of_thread = [Call::SessionRun, Call::NewSession];
        if let Some((_, s)) = self.threads[t].inside.iter().rfind(|(call, _)| of_thread.contains(call)) {
            return s.map(|s| self.sessions[s].id);
        }
        if origin.op == 0 {
            return None;
        }
        if let Some(&id) = self.steps.get(&origin.step) {
            return Some(id);
        }
        let busy: Vec<u64> = self.sessions.iter().filter(|s| s.running > 0).map(|s| s.id).collect();
        (busy.len() == 1 && self.unknown_running == 0).then(|| busy[0])
    }

    /// The next event, what it must change, and the owner if it is a chunk.
    pub fn next(&mut self, rng: &mut Rng) -> (u32, Body, Vec<Change>, Option<Option<u64>>) {
        loop {
            // The last thread does nothing but allocate: it is one of the executor's.
            let t = usize::try_from(rng.below(u64::from(THREADS))).unwrap();
            let tid = PID + u32::try_from(t).unwrap();
            if t + 1 == THREADS as usize {
                self.threads[t].script = VecDeque::from([Step::Chunk]);
            } else if self.threads[t].script.is_empty() {
                self.threads[t].script = self.script(rng, 0).into();
            }
            let Some(step) = self.threads[t].script.pop_front() else { continue };
            self.at += 1;
            let mut changes = Vec::new();
            let mut owner = None;
            if let Some(body) = self.step(rng, t, &step, &mut changes, &mut owner) {
                return (tid, body, changes, owner);
            }
        }
    }

    fn step(
        &mut self,
        rng: &mut Rng,
        t: usize,
        step: &Step,
        changes: &mut Vec<Change>,
        owner: &mut Option<Option<u64>>,
    ) -> Option<Body> {
        let enter = |call, arg| Some(Body::Enter { call, args: [arg, 0, 0, 0, 0, 0], text: None });
        let leave = |call, ret| Some(Body::Leave { call, ret });
        let at = self.at;
        let opening = |s: &Session| if s.saved_model { Call::LoadSavedModel } else { Call::NewSession };
        match *step {
            Step::Open(s) => {
                let id = self.id();
                self.sessions[s].id = id;
                self.threads[t].inside.push((Call::NewSession, Some(s)));
                // The time of opening is that of the entry; it counts once the call returned a handle.
                self.sessions[s].deleting = Some(at);
                enter(opening(&self.sessions[s]), 0)
            }
            Step::Made(s) => {
                let inside = self.threads[t].inside.iter().any(|(call, _)| *call == Call::NewSession);
                if !inside && self.sessions[s].opened.is_none() {
                    let id = self.id();
                    self.sessions[s].id = id;
                    self.sessions[s].opened = Some(at);
                    changes.push(Change::SessionOpened(id));
                }
                enter(Call::DirectSessionNew, self.sessions[s].direct)
            }
            Step::Ready(s) => {
                self.sessions[s].dying = false;
                None
            }
            Step::Opened(s, worked) => {
                self.threads[t].inside.pop();
                let began = self.sessions[s].deleting.take();
                let call = opening(&self.sessions[s]);
                if worked {
                    self.sessions[s].opened = began;
                    changes.push(Change::SessionOpened(self.sessions[s].id));
                    return leave(call, self.sessions[s].handle);
                }
                self.sessions[s].dying = true;
                self.give_back(s);
                leave(call, 0)
            }
            Step::Gone(s) => {
                if self.sessions[s].handle == 0 && self.sessions[s].deleted.is_none() {
                    self.closing(s, changes);
                    changes.push(Change::SessionDeleting(self.sessions[s].id));
                    self.closed(s, changes);
                    self.sessions[s].deleting = Some(at);
                    self.sessions[s].deleted = Some(at);
                    changes.push(Change::SessionDeleted(self.sessions[s].id));
                }
                enter(Call::DirectSessionDestroy, self.sessions[s].direct)
            }
            Step::ObjectClose(s) => {
                self.closing(s, changes);
                self.threads[t].inside.push((Call::DirectSessionClose, Some(s)));
                enter(Call::DirectSessionClose, self.sessions[s].direct)
            }
            Step::ObjectClosed(s) => {
                self.threads[t].inside.pop();
                let inside_close = self.threads[t].inside.contains(&(Call::CloseSession, Some(s)));
                if !inside_close {
                    self.closed(s, changes);
                }
                if self.sessions[s].handle == 0 {
                    self.sessions[s].users = self.sessions[s].users.saturating_sub(1);
                }
                leave(Call::DirectSessionClose, 0)
            }
            Step::Close(s) => {
                self.closing(s, changes);
                self.threads[t].inside.push((Call::CloseSession, Some(s)));
                enter(Call::CloseSession, self.sessions[s].handle)
            }
            Step::Closed(s) => {
                self.threads[t].inside.pop();
                self.closed(s, changes);
                self.sessions[s].users -= 1;
                leave(Call::CloseSession, 0)
            }
            Step::Delete(s) => {
                self.closing(s, changes);
                changes.push(Change::SessionDeleting(self.sessions[s].id));
                self.sessions[s].deleting = Some(at);
                self.threads[t].inside.push((Call::DeleteSession, Some(s)));
                enter(Call::DeleteSession, self.sessions[s].handle)
            }
            Step::Freed(s) => {
                self.give_back(s);
                None
            }
            Step::Deleted(s) => {
                self.threads[t].inside.pop();
                self.closed(s, changes);
                self.sessions[s].deleted = Some(at);
                changes.push(Change::SessionDeleted(self.sessions[s].id));
                leave(Call::DeleteSession, 0)
            }
            Step::Run(s) => {
                self.sessions[s].runs += 1;
                self.sessions[s].running += 1;
                self.threads[t].inside.push((Call::SessionRun, Some(s)));
                enter(Call::SessionRun, self.sessions[s].handle)
            }
            Step::Stepped(s) => {
                // A run of a C++ program counts by its step, unless it is inside another.
                let inside =
                    self.threads[t].inside.iter().rfind(|(c, _)| [Call::SessionRun, Call::NewSession].contains(c));
                let id = match inside {
                    Some((_, around)) => around.map_or(self.sessions[s].id, |s| self.sessions[s].id),
                    None => {
                        self.sessions[s].runs += 1;
                        self.sessions[s].id
                    }
                };
                let step = self.next_step;
                self.next_step += 1;
                self.steps.insert(step, id);
                let args = [self.sessions[s].direct, step.cast_unsigned(), 0, 0, 0, 0];
                Some(Body::Enter { call: Call::DirectSessionStep, args, text: None })
            }
            Step::Ran(s) => {
                self.sessions[s].users -= 1;
                if self.sessions[s].handle == 0 {
                    return None;
                }
                self.threads[t].inside.pop();
                self.sessions[s].running -= 1;
                leave(Call::SessionRun, 0)
            }
            Step::Unknown(call) => {
                self.anomalies.unknown_handles += 1;
                self.unknown_running += u32::from(call == Call::SessionRun);
                self.threads[t].inside.push((call, None));
                enter(call, 0xbad)
            }
            Step::UnknownEnds(call) => {
                self.unknown_running -= u32::from(call == Call::SessionRun);
                self.threads[t].inside.pop();
                leave(call, 0)
            }
            Step::Chunk => {
                let origin = Origin {
                    op: rng.below(3),
                    // A step of late, one of long ago, or none.
                    step: self.next_step - rng.below(12).cast_signed(),
                    ..Origin::default()
                };
                *owner = Some(self.owner(t, &origin));
                self.next_chunk += 1;
                let addr = 0x7000_0000 + self.next_chunk % 512 * 64;
                Some(Body::ChunkAlloc { pool: 0xb00, addr, requested: 60, bytes: 64, origin })
            }
            Step::Enter(call) => {
                match call {
                    Call::ClearCaches => changes.push(Change::CachesClearing(0xc0)),
                    Call::DeleteContext => changes.push(Change::ContextDeleting(0xc0)),
                    Call::DeleteGraph => self.graphs.closed += 1,
                    Call::AddFunction => self.functions.opened += 1,
                    Call::RemoveFunction => self.functions.closed += 1,
                    _ => {}
                }
                enter(call, 0xc0)
            }
            Step::Leave(call) => {
                let ret = rng.below(2);
                match call {
                    Call::ClearCaches => changes.push(Change::CachesCleared(0xc0)),
                    Call::DeleteContext => {
                        self.contexts.closed += 1;
                        changes.push(Change::ContextDeleted(0xc0));
                    }
                    Call::NewGraph => self.graphs.opened += ret,
                    _ => self.contexts.opened += ret,
                }
                leave(call, ret)
            }
        }
    }
}
