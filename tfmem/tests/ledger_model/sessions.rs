//! Programs that open, run, close and delete sessions on several threads, and what the ledger must say of each call.

use std::collections::{BTreeMap, VecDeque};

use tfmem::event::{Body, Call, Origin};
use tfmem::ledger::types::{Anomalies, Change, HandleCount};
use tfmem::ledger::{Ledger, Process};

use crate::{Rng, apply, streams};

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
    RunStep(usize),
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
    id: u64,
    handle: u64,
    direct: u64,
    saved_model: bool,
    /// Scripts that use it, and whether one is deleting it.
    users: u32,
    dying: bool,
    opened: Option<u64>,
    closing: Option<u64>,
    closed: Option<u64>,
    deleting: Option<u64>,
    pub deleted: Option<u64>,
    runs: u64,
    running: u32,
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
    next_chunk: u64,
    unknown_running: u32,
    anomalies: Anomalies,
    graphs: HandleCount,
    contexts: HandleCount,
    functions: HandleCount,
    at: u64,
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

    /// A script for a thread that has nothing to do, or for Python code that a run calls.
    fn script(&mut self, rng: &mut Rng, depth: u32) -> Vec<Step> {
        let usable: Vec<usize> = (0..self.sessions.len())
            .filter(|&i| self.sessions[i].opened.is_some() && !self.sessions[i].dying)
            .collect();
        let twice = |rng: &mut Rng, step: Step| vec![step; 1 + usize::from(rng.one_in(2))];
        let mut script = Vec::new();
        let what = rng.below(if usable.is_empty() { 4 } else { 18 });
        match what {
            0 | 1 if self.handles.len() > 1 && self.directs.len() > 1 => {
                let s = self.sessions.len();
                let direct = if rng.one_in(4) { 0 } else { self.take_direct(rng) };
                let saved_model = rng.one_in(3);
                let handle = if rng.one_in(5) { 0 } else { self.take_handle(rng) };
                let fails = rng.one_in(6);
                self.sessions.push(Session { handle, direct, saved_model, ..Session::default() });
                if handle == 0 && direct != 0 {
                    // Opened through C++ alone; nobody has it before its constructors are through.
                    self.sessions[s].dying = true;
                    script.extend(twice(rng, Step::Made(s)));
                    script.push(Step::Ready(s));
                    return script;
                }
                if handle == 0 {
                    let handle = self.take_handle(rng);
                    self.sessions[s].handle = handle;
                }
                script.push(Step::Open(s));
                if direct != 0 {
                    script.extend(twice(rng, Step::Made(s)));
                    if saved_model {
                        script.push(Step::RunStep(s));
                    }
                }
                script.push(Step::Chunk);
                if fails && direct != 0 {
                    script.extend(twice(rng, Step::Gone(s)));
                    script.extend([Step::ObjectClose(s), Step::ObjectClosed(s)]);
                }
                script.push(Step::Opened(s, !fails));
            }
            2 => {
                let call = *rng.pick(&[Call::CloseSession, Call::DeleteSession, Call::SessionRun]);
                script.extend([Step::Unknown(call), Step::Chunk, Step::UnknownEnds(call)]);
            }
            3 => {
                let calls = [Call::NewGraph, Call::NewContext, Call::ClearCaches, Call::DeleteContext];
                let call = *rng.pick(&calls);
                script.extend([Step::Enter(call), Step::Leave(call)]);
                script.push(Step::Enter(*rng.pick(&[Call::DeleteGraph, Call::AddFunction, Call::RemoveFunction])));
            }
            0 | 1 => script.push(Step::Chunk),
            4..=6 => {
                let s = *rng.pick(&usable);
                self.sessions[s].users += 1;
                let inner = [Step::ObjectClose(s), Step::ObjectClosed(s)];
                let (handle, direct) = (self.sessions[s].handle, self.sessions[s].direct);
                if handle == 0 {
                    script.extend(inner);
                } else {
                    script.push(Step::Close(s));
                    script.extend(inner.into_iter().filter(|_| direct != 0));
                    script.push(Step::Closed(s));
                }
            }
            7 | 8 => {
                let s = *rng.pick(&usable);
                if self.sessions[s].users > 0 {
                    return vec![Step::Chunk];
                }
                self.sessions[s].dying = true;
                let (handle, direct) = (self.sessions[s].handle, self.sessions[s].direct);
                if handle != 0 {
                    script.push(Step::Delete(s));
                }
                if direct != 0 {
                    script.extend(twice(rng, Step::Gone(s)));
                    if handle == 0 || rng.one_in(2) {
                        script.extend([Step::ObjectClose(s), Step::ObjectClosed(s)]);
                    }
                }
                script.push(Step::Freed(s));
                if handle != 0 {
                    script.push(Step::Deleted(s));
                }
            }
            _ => {
                let s = *rng.pick(&usable);
                self.sessions[s].users += 1;
                if self.sessions[s].handle != 0 {
                    script.push(Step::Run(s));
                }
                if self.sessions[s].direct != 0 {
                    script.push(Step::RunStep(s));
                }
                script.push(Step::Chunk);
                if depth < 2 && rng.one_in(4) && self.sessions[s].handle != 0 {
                    script.extend(self.script(rng, depth + 1));
                    script.push(Step::Chunk);
                }
                script.push(Step::Ran(s));
            }
        }
        script
    }

    fn take_handle(&mut self, rng: &mut Rng) -> u64 {
        let i = usize::try_from(rng.below(self.handles.len() as u64)).unwrap();
        self.handles.swap_remove(i)
    }

    fn take_direct(&mut self, rng: &mut Rng) -> u64 {
        let i = usize::try_from(rng.below(self.directs.len() as u64)).unwrap();
        self.directs.swap_remove(i)
    }

    fn give_back(&mut self, s: usize) {
        self.handles.extend(Some(self.sessions[s].handle).filter(|h| *h != 0));
        self.directs.extend(Some(self.sessions[s].direct).filter(|d| *d != 0));
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
            if let Some(body) = self.step(rng, t, step, &mut changes, &mut owner) {
                return (tid, body, changes, owner);
            }
        }
    }

    fn step(
        &mut self,
        rng: &mut Rng,
        t: usize,
        step: Step,
        changes: &mut Vec<Change>,
        owner: &mut Option<Option<u64>>,
    ) -> Option<Body> {
        let enter = |call, arg| Some(Body::Enter { call, args: [arg, 0, 0, 0, 0, 0], text: None });
        let leave = |call, ret| Some(Body::Leave { call, ret });
        let at = self.at;
        let opening = |s: &Session| if s.saved_model { Call::LoadSavedModel } else { Call::NewSession };
        match step {
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
            Step::RunStep(s) => {
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

    fn check(&self, process: &Process) {
        let mut wanted: Vec<&Session> = self.sessions.iter().filter(|s| s.opened.is_some()).collect();
        wanted.sort_by_key(|s| s.id);
        assert_eq!(process.sessions.len(), wanted.len());
        for (known, s) in process.sessions.iter().zip(&wanted) {
            assert_eq!((known.id, known.handle, Some(known.opened)), (s.id, s.handle, s.opened));
            assert_eq!((known.closing, known.closed), (s.closing, s.closed));
            assert_eq!((known.deleting, known.deleted), (s.deleting, s.deleted));
            assert_eq!((known.runs, known.running), (s.runs, s.running), "session {}", s.id);
            assert_eq!(process.session(s.id), Some(known));
        }
        let count = |f: fn(&Session) -> bool| wanted.iter().filter(|s| f(s)).count() as u64;
        let counts = process.session_counts();
        assert_eq!(counts.opened, wanted.len() as u64);
        assert_eq!(counts.closed, count(|s| s.closed.is_some()));
        assert_eq!(counts.deleted, count(|s| s.deleted.is_some()));
        assert_eq!((process.graphs, process.contexts, process.functions), (self.graphs, self.contexts, self.functions));
        let reused_alive = process.anomalies.reused_alive;
        assert_eq!(process.anomalies, Anomalies { reused_alive, ..self.anomalies });
        // Chunks are never given back here, so every address handed out again counts; no session's does.
        assert_eq!(reused_alive, self.next_chunk.saturating_sub(512));
    }
}

#[test]
fn sessions_are_what_their_program_did() {
    for (mut rng, events) in streams(240_000) {
        println!("seed {}", rng.seed);
        let (mut ledger, mut program) = (Ledger::new(), Program::new());
        for i in 0..events {
            let (tid, body, changes, owner) = program.next(&mut rng);
            let told = apply(&mut ledger, program.at, PID, tid, body.clone());
            assert_eq!(told, changes, "{body:?}");
            let process = ledger.process(PID).unwrap();
            if let (Some(owner), Body::ChunkAlloc { addr, .. }) = (owner, &body) {
                let chunk = process.allocation(tfmem::ledger::types::BlockLayer::Chunk, *addr).unwrap();
                assert_eq!(chunk.owner, owner, "{body:?}");
            }
            if i % 256 == 0 {
                program.check(process);
            }
        }
        program.check(ledger.process(PID).unwrap());
        assert!(program.sessions.iter().filter(|s| s.deleted.is_some()).count() > 100);
    }
}
