//! What a thread does next: whole scripts, with the calls nested as TensorFlow nests them.

use tfmem::event::Call;

use super::{Program, Session, Step};
use crate::Rng;

impl Program {
    /// A script for a thread that has nothing to do, or for Python code that a run calls.
    pub(super) fn script(&mut self, rng: &mut Rng, depth: u32) -> Vec<Step> {
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
                        script.push(Step::Stepped(s));
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
                    script.push(Step::Stepped(s));
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

    pub(super) fn give_back(&mut self, s: usize) {
        self.handles.extend(Some(self.sessions[s].handle).filter(|h| *h != 0));
        self.directs.extend(Some(self.sessions[s].direct).filter(|d| *d != 0));
    }
}
