//! The rare events of a process, kept for an analysis that begins later: it knows the sessions that are open then.

use std::collections::VecDeque;

use crate::event::{Body, Event, LibraryInfo};

/// Kept of one process.
const MOST: usize = 512;

#[derive(Debug, Default)]
pub struct Kept {
    /// Who it is and what it maps, told once.
    identity: Vec<Event>,
    calls: VecDeque<Event>,
    /// The last look.
    look: Option<Event>,
}

impl Kept {
    /// How many events had to be forgotten for this one.
    pub fn add(&mut self, event: &Event) -> u64 {
        match &event.body {
            Body::Process(_) => {
                self.identity.retain(|known| !matches!(known.body, Body::Process(_)));
                self.identity.push(event.clone());
            }
            Body::Library(library) => {
                let same = |known: &Event| matches!(&known.body, Body::Library(k) if k.path == library.path);
                self.identity.retain(|known| !same(known));
                self.identity.push(event.clone());
            }
            Body::Exec => {
                self.identity.retain(|known| matches!(known.body, Body::Process(_)));
                self.calls.clear();
                self.look = None;
            }
            Body::Enter { .. } | Body::Leave { .. } => {
                self.calls.push_back(event.clone());
                if self.calls.len() > MOST {
                    self.calls.pop_front();
                    return 1;
                }
            }
            Body::Snapshot(_) => self.look = Some(event.clone()),
            _ => {}
        }
        0
    }

    pub fn knows(&self, library: &LibraryInfo) -> bool {
        self.identity.iter().any(|known| matches!(&known.body, Body::Library(k) if k.path == library.path))
    }

    /// In order of time.
    pub fn events(&self) -> Vec<&Event> {
        let mut events: Vec<&Event> = self.identity.iter().chain(&self.calls).chain(&self.look).collect();
        events.sort_by_key(|event| event.at);
        events
    }

    pub fn forget_calls(&mut self) -> u64 {
        let forgotten = self.calls.len();
        self.calls = VecDeque::new();
        forgotten as u64
    }
}
