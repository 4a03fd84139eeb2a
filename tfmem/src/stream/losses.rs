//! Loss counters as events: each kind by name, as a running total, sent when it changed.

use std::{collections::BTreeMap, sync::Arc};

use tfmem_common::{counters, unwind::end, wire::kind};

use crate::event::{Body, Event};

/// Names of the kernel's counters. All records that could not be sent add up to `events_dropped`.
const NAMES: &[(u32, &str)] = &[
    (kind::CHUNK as u32, "dropped_chunks"),
    (kind::HEAP_ALLOC as u32, "dropped_heap_allocations"),
    (kind::HEAP_FREE as u32, "dropped_heap_frees"),
    (kind::ENTER as u32, "dropped_calls"),
    (kind::ENTER_TEXT as u32, "dropped_calls_with_text"),
    (kind::LEAVE as u32, "dropped_returns"),
    (kind::MEMORY as u32, "dropped_mappings"),
    (kind::FORK as u32, "dropped_forks"),
    (kind::EXEC as u32, "dropped_execs"),
    (kind::EXIT as u32, "dropped_exits"),
    (kind::NAME as u32, "dropped_names"),
    (kind::HOLD as u32, "dropped_holds"),
    (counters::ANNOTATION_UNREADABLE, "annotations_unreadable"),
    (counters::TEXT_UNREADABLE, "texts_unreadable"),
    (counters::INFLIGHT_FULL, "calls_in_flight_overflow"),
    (counters::RETURN_WITHOUT_ENTRY, "returns_without_entry"),
    (counters::STALE_ENTRY, "entries_without_return"),
    (counters::PROCESSES_FULL, "processes_not_traced"),
    (counters::HOLD_FAILED, "holds_failed"),
    (counters::HOLD_LAPSED, "holds_lapsed"),
    (counters::NAME_TRUNCATED, "names_truncated"),
    (counters::CHUNK_UNREADABLE, "chunks_unreadable"),
    (counters::LOST_WITHOUT_PROCESS, "losses_without_process"),
    (counters::RESULT_UNREADABLE, "gpu_results_unreadable"),
    (kind::STACK as u32, "dropped_stacks"),
    (kind::COPY as u32, "dropped_stack_copies"),
    (kind::GPU as u32, "dropped_gpu_calls"),
    (counters::UNWIND_BUSY, "stacks_not_taken"),
    (counters::UNWIND_UNKNOWN_CODE, "stack_frames_in_unknown_code"),
    (counters::UNWIND_NO_ROW, "stack_frames_without_rule"),
    (counters::RETURNS_FULL, "return_addresses_not_kept"),
    (counters::PYTHON_THREAD_UNKNOWN, "python_threads_unknown"),
    (counters::PYTHON_UNREADABLE, "python_frames_unreadable"),
    (counters::PYTHON_TRUNCATED, "python_frames_truncated"),
    (counters::PYTHON_UNPLACED, "python_frames_unplaced"),
    (counters::UNWIND_END_BASE + end::TRUNCATED, "stacks_truncated"),
    (counters::UNWIND_END_BASE + end::UNREADABLE, "stacks_unreadable"),
    (counters::UNWIND_END_BASE + end::UNSUPPORTED, "stacks_by_unsupported_rule"),
    (counters::UNWIND_END_BASE + end::UNKNOWN_CODE, "stacks_in_unknown_code"),
    (counters::UNWIND_END_BASE + end::NO_ROW, "stacks_without_rule"),
    (counters::UNWIND_END_BASE + end::NO_PROGRESS, "stacks_without_progress"),
];

/// Remembers what was already said.
#[derive(Debug, Default)]
pub struct Losses {
    said: BTreeMap<&'static str, u64>,
}

impl Losses {
    /// Events for the counters that changed since the last call. `own` are losses of user space by name.
    pub fn events(&mut self, at: u64, kernel: &[u64], own: &[(&'static str, u64)]) -> Vec<Event> {
        let slot = |slot: u32| kernel.get(slot as usize).copied().unwrap_or(0);
        let dropped = (counters::DROPPED_BASE..counters::DROPPED_SLOTS).map(slot).sum();
        let named = NAMES.iter().map(|&(number, name)| (name, slot(number)));
        let all = named.chain([("events_dropped", dropped)]).chain(own.iter().copied());
        let mut events = Vec::new();
        for (name, count) in all {
            let said = self.said.entry(name).or_insert(0);
            if *said != count {
                *said = count;
                events.push(Event {
                    at,
                    pid: 0,
                    tid: 0,
                    stack: None,
                    body: Body::Lost { what: Arc::from(name), count },
                });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_said_once_and_added_to_the_total() {
        let mut losses = Losses::default();
        let mut kernel = vec![0; counters::SLOTS as usize];
        kernel[usize::from(kind::CHUNK)] = 3;
        kernel[usize::from(kind::NAME)] = 1;
        let said: BTreeMap<_, _> = losses
            .events(0, &kernel, &[("events_late", 0)])
            .into_iter()
            .filter_map(|event| match event.body {
                Body::Lost { what, count } => Some((what.to_string(), count)),
                _ => None,
            })
            .collect();
        assert_eq!(said.get("dropped_chunks"), Some(&3));
        assert_eq!(said.get("events_dropped"), Some(&4));
        assert_eq!(said.len(), 3, "what did not happen is not said");
        assert!(losses.events(1, &kernel, &[]).is_empty(), "nothing changed");
    }
}
