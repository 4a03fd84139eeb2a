//! Which of the things that were done on purpose came back as events.

use super::bait::{self, Calls};
use crate::event::{Body, Call, Event};

/// The call that the trial probes' cookie names. Any of the catalogue will do.
pub const CALL: Call = Call::RemoveFunction;

/// What was seen of one call of the probed function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedCall {
    pub entered: bool,
    /// With the arguments that it was called with, and the text behind one of them.
    pub argument: bool,
    pub text: bool,
    /// The cookie of the probe came along.
    pub cookie: bool,
    pub left: bool,
    pub returned: bool,
}

pub fn probed_call(pid: u32, events: &[Event], result: u64) -> ProbedCall {
    let mut seen = ProbedCall::default();
    for event in events.iter().filter(|event| event.pid == pid) {
        match &event.body {
            Body::Enter { call, args, text } => {
                seen.entered = true;
                seen.cookie |= *call == CALL;
                seen.argument |= args.first() == Some(&bait::NUMBER);
                seen.text |= text.as_deref() == bait::TEXT.to_str().ok();
            }
            Body::Leave { call, ret } => {
                seen.left = true;
                seen.cookie |= *call == CALL;
                seen.returned |= *ret == result;
            }
            _ => {}
        }
    }
    seen
}

/// The memory calls of ours that were not seen.
pub fn memory_calls_missed(pid: u32, events: &[Event], calls: &Calls) -> Vec<&'static str> {
    let (mapped, moved) = (bait::MAPPED_BYTES as u64, bait::MOVED_BYTES as u64);
    let ours = |body: &Body| match *body {
        Body::Map { start, len, .. } => (start, len) == (calls.mapped, mapped),
        Body::Advise { start, len, .. } => (start, len) == (calls.mapped, mapped),
        Body::Remap { old_start, start, len, .. } => (old_start, start, len) == (calls.mapped, calls.moved, moved),
        Body::Unmap { start, len } => (start, len) == (calls.moved, moved),
        Body::Brk { .. } => true,
        _ => false,
    };
    missed(&["mmap", "munmap", "mremap", "brk", "madvise"], |name| {
        events.iter().any(|event| event.pid == pid && name_is(&event.body, name) && ours(&event.body))
    })
}

/// Of a child that executed a program and ended.
pub fn process_events_missed(pid: u32, events: &[Event], child: u32) -> Vec<&'static str> {
    missed(&["fork", "exec", "exit"], |name| {
        events.iter().any(|event| match event.body {
            Body::Fork { child: made, .. } => name == "fork" && (event.pid, made) == (pid, child),
            _ => event.pid == child && name_is(&event.body, name),
        })
    })
}

fn missed(names: &[&'static str], seen: impl Fn(&str) -> bool) -> Vec<&'static str> {
    names.iter().copied().filter(|name| !seen(name)).collect()
}

fn name_is(body: &Body, name: &str) -> bool {
    let own = match body {
        Body::Map { .. } => "mmap",
        Body::Unmap { .. } => "munmap",
        Body::Remap { .. } => "mremap",
        Body::Brk { .. } => "brk",
        Body::Advise { .. } => "madvise",
        Body::Fork { .. } => "fork",
        Body::Exec => "exec",
        Body::ThreadExit => "exit",
        _ => return false,
    };
    own == name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pid: u32, body: Body) -> Event {
        Event { at: 1, pid, tid: pid, stack: None, body }
    }

    #[test]
    fn a_call_is_recognised_by_all_that_it_carries() {
        let text = bait::TEXT.to_str().ok().map(Into::into);
        let enter = event(7, Body::Enter { call: CALL, args: [bait::NUMBER, 2, 0, 0, 0, 0], text });
        let leave = event(7, Body::Leave { call: CALL, ret: 9 });
        let all = ProbedCall { entered: true, argument: true, text: true, cookie: true, left: true, returned: true };
        assert_eq!(probed_call(7, &[enter.clone(), leave.clone()], 9), all);
        assert_eq!(probed_call(8, &[enter.clone(), leave], 9), ProbedCall::default(), "another process's");
        assert!(!probed_call(7, &[enter], 9).left);
        let other = event(7, Body::Enter { call: Call::NewGraph, args: [0; 6], text: None });
        assert_eq!(probed_call(7, &[other], 9), ProbedCall { entered: true, ..ProbedCall::default() });
    }

    #[test]
    fn what_was_not_seen_is_named() {
        let calls = Calls { mapped: 0x1000, moved: 0x9000 };
        assert_eq!(memory_calls_missed(7, &[], &calls), ["mmap", "munmap", "mremap", "brk", "madvise"]);
        let len = bait::MAPPED_BYTES as u64;
        let map = event(7, Body::Map { start: 0x1000, len, prot: 3, flags: 0x22, file: false });
        let other = event(7, Body::Unmap { start: 0x5000, len: bait::MOVED_BYTES as u64 });
        assert_eq!(memory_calls_missed(7, &[map, other], &calls), ["munmap", "mremap", "brk", "madvise"]);
        let fork = event(7, Body::Fork { child: 8, shares_memory: true });
        assert_eq!(process_events_missed(7, &[fork, event(8, Body::Exec)], 8), ["exit"]);
        assert_eq!(process_events_missed(7, &[event(7, Body::ThreadExit)], 8), ["fork", "exec", "exit"]);
    }
}
