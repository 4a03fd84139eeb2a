//! What was lost of each process as events: running totals, sent when they changed.

use rustc_hash::FxHashMap;
use tfmem_common::lost::{Key, Lost, what};

use crate::event::{Body, Event, Missed, MissedTotal};

/// Remembers what was already said.
#[derive(Debug, Default)]
pub struct Misses {
    said: FxHashMap<(u32, u32), u64>,
}

impl Misses {
    /// Events for the totals that changed since the last call. Somewhere between that call and this one the records
    /// were lost: `at` is the time of the last call, so that nothing that is inexact passes as exact.
    pub fn events(&mut self, at: u64, lost: &[(Key, Lost)]) -> Vec<Event> {
        let mut events = Vec::new();
        for (key, total) in lost {
            let Some(what) = missed(key.what) else { continue };
            if self.said.insert((key.pid, key.what), total.records) == Some(total.records) {
                continue;
            }
            let total =
                MissedTotal { records: total.records, bytes: total.bytes, unsized_records: total.unsized_records };
            events.push(Event::of(at, key.pid, key.pid, Body::Missed { what, total }));
        }
        events
    }

    /// The process is gone; its pid may come again.
    pub fn forget(&mut self, pid: u32) {
        self.said.retain(|(of, _), _| *of != pid);
    }
}

const fn missed(number: u32) -> Option<Missed> {
    Some(match number {
        what::CHUNK_TAKEN => Missed::ChunkTaken,
        what::CHUNK_GIVEN_BACK => Missed::ChunkGivenBack,
        what::HEAP_TAKEN => Missed::HeapTaken,
        what::HEAP_GIVEN_BACK => Missed::HeapGivenBack,
        what::MAPPING => Missed::Mapping,
        what::CALL => Missed::Call,
        what::GPU => Missed::Gpu,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_said_when_it_changed() {
        let mut misses = Misses::default();
        let lost = |records| {
            let total = Lost { records, bytes: records * 10, unsized_records: 0 };
            [(Key { pid: 7, what: what::CHUNK_TAKEN }, total)]
        };
        let said = misses.events(5, &lost(2));
        let total = MissedTotal { records: 2, bytes: 20, unsized_records: 0 };
        let body = Body::Missed { what: Missed::ChunkTaken, total };
        assert_eq!(said, [Event::of(5, 7, 7, body)]);
        assert!(misses.events(6, &lost(2)).is_empty());
        assert_eq!(misses.events(7, &lost(3)).len(), 1);
        misses.forget(7);
        assert_eq!(misses.events(8, &lost(3)).len(), 1, "another process with this pid");
    }
}
