//! Counts the sessions that are closed, for a trace that ends after some of them (`--until-close`).

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Addr, Body, Call, Event};

/// A session that is closed and deleted counts once, whichever of its layers tells of it first.
#[derive(Debug)]
pub struct Closes {
    wanted: u64,
    grace_ns: u64,
    /// Closing calls under way, by thread: the C API's call, and the one on the `DirectSession` inside it.
    inside: BTreeMap<(u32, u32), Vec<(Call, Addr)>>,
    /// Handles that counted when they were closed, and may be deleted later.
    closed: BTreeSet<(u32, Addr)>,
    counted: u64,
    due: Option<u64>,
}

impl Closes {
    pub const fn new(wanted: u64, grace_ns: u64) -> Self {
        Self { wanted, grace_ns, inside: BTreeMap::new(), closed: BTreeSet::new(), counted: 0, due: None }
    }

    pub fn feed(&mut self, event: &Event) {
        let thread = (event.pid, event.tid);
        match event.body {
            Body::Enter { call, ref args, .. } if closes(call) => {
                self.inside.entry(thread).or_default().push((call, args[0]));
            }
            // Its address may be another session's from now on.
            Body::Enter { call: Call::DirectSessionDestroy, ref args, .. } => {
                self.closed.remove(&(event.pid, args[0]));
            }
            Body::Leave { call, .. } if closes(call) => {
                let Some(calls) = self.inside.get_mut(&thread) else { return };
                // Returns that were lost leave calls on top that are over as well.
                let Some(place) = calls.iter().rposition(|&(of, _)| of == call) else { return };
                let handle = calls.get(place).map_or(0, |&(_, handle)| handle);
                calls.truncate(place);
                let outermost = calls.is_empty();
                if outermost {
                    self.inside.remove(&thread);
                    self.over((event.pid, handle), call == Call::DeleteSession, event.at);
                }
            }
            _ => {}
        }
    }

    fn over(&mut self, session: (u32, Addr), deleted: bool, at: u64) {
        let counted_before = self.closed.contains(&session);
        if deleted {
            self.closed.remove(&session);
        }
        if !counted_before {
            if self.due.is_some() {
                // Further sessions do not keep the trace going.
                return;
            }
            self.counted += 1;
            if !deleted {
                self.closed.insert(session);
            }
        }
        // A delete that follows (Python deletes a session soon after it closed it) gets its own grace time.
        if self.counted >= self.wanted {
            self.due = Some(at.saturating_add(self.grace_ns));
        }
    }

    /// The wanted number was closed and the grace time is over.
    pub fn over_at(&self, now: u64) -> bool {
        self.due.is_some_and(|due| now >= due)
    }
}

const fn closes(call: Call) -> bool {
    matches!(call, Call::CloseSession | Call::DeleteSession | Call::DirectSessionClose)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(closes: &mut Closes, call: Call, handle: Addr, times: (u64, u64)) {
        let mut args = [0; 6];
        args[0] = handle;
        closes.feed(&Event { at: times.0, pid: 1, tid: 1, stack: None, body: Body::Enter { call, args, text: None } });
        closes.feed(&Event { at: times.1, pid: 1, tid: 1, stack: None, body: Body::Leave { call, ret: 0 } });
    }

    #[test]
    fn a_close_and_its_delete_count_once() {
        let mut closes = Closes::new(2, 100);
        call(&mut closes, Call::CloseSession, 7, (10, 20));
        call(&mut closes, Call::DeleteSession, 7, (30, 40));
        assert!(!closes.over_at(1_000));
        call(&mut closes, Call::DeleteSession, 8, (50, 60));
        assert!(!closes.over_at(159));
        assert!(closes.over_at(160));
    }

    #[test]
    fn the_delete_that_follows_gets_its_own_grace_time() {
        let mut closes = Closes::new(1, 100);
        call(&mut closes, Call::CloseSession, 7, (10, 20));
        call(&mut closes, Call::DeleteSession, 7, (70, 80));
        assert!(!closes.over_at(179));
        // Other sessions do not keep a trace going for ever.
        call(&mut closes, Call::CloseSession, 8, (90, 150));
        assert!(closes.over_at(180));
    }

    #[test]
    fn the_session_inside_a_session_is_the_same() {
        let mut closes = Closes::new(2, 0);
        let enter = |call, handle| Body::Enter { call, args: [handle, 0, 0, 0, 0, 0], text: None };
        for body in [
            enter(Call::CloseSession, 7),
            enter(Call::DirectSessionClose, 70),
            Body::Leave { call: Call::DirectSessionClose, ret: 0 },
            Body::Leave { call: Call::CloseSession, ret: 0 },
        ] {
            closes.feed(&Event { at: 1, pid: 1, tid: 1, stack: None, body });
        }
        assert!(!closes.over_at(2));
        call(&mut closes, Call::DirectSessionClose, 80, (3, 4));
        assert!(closes.over_at(4));
    }
}
