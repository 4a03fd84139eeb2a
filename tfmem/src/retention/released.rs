//! What closes and deletes gave back: the proof that memory was freed, when and by what.

use super::clock::WallClock;
use super::record::{Record, Subject};
use crate::report::model::{BoundaryKind, Released};
use crate::report::units::{bytes, counted, span_ms};

/// Closes of one kind that follow one another are told together: "closing 4 sessions gave back 256.0 MiB".
pub(super) fn released(records: &[Record], born: u64, min_bytes: u64, clock: WallClock) -> Vec<Released> {
    let mut runs: Vec<Run> = Vec::new();
    for record in
        records.iter().filter(|r| matches!(r.subject, Subject::Session(_) | Subject::Worker(_)) && r.given_back > 0)
    {
        match runs.last_mut() {
            Some(run) if run.kind == record.kind => run.add(record),
            _ => runs.push(Run::of(record)),
        }
    }
    runs.iter().filter(|r| r.bytes >= min_bytes).map(|r| r.report(born, clock)).collect()
}

struct Run {
    kind: BoundaryKind,
    boundary: u64,
    count: u64,
    bytes: u64,
    first: u64,
    last: u64,
}

impl Run {
    const fn of(r: &Record) -> Self {
        Self { kind: r.kind, boundary: r.id, count: 1, bytes: r.given_back, first: r.at, last: r.at }
    }

    const fn add(&mut self, r: &Record) {
        self.boundary = r.id;
        self.count += 1;
        self.bytes = self.bytes.saturating_add(r.given_back);
        self.last = r.at;
    }

    fn report(&self, born: u64, clock: WallClock) -> Released {
        let (verb, noun) = match self.kind {
            BoundaryKind::SessionDeleted => ("deleting", "session"),
            BoundaryKind::WorkerSessionDeleted => ("the end of", "worker session"),
            _ => ("closing", "session"),
        };
        let since = |at: u64| span_ms(at.saturating_sub(born) / 1_000_000);
        let (first, last) = (since(self.first), since(self.last));
        let when = if first == last {
            format!("{last} after the start")
        } else {
            format!("{first} to {last} after the start")
        };
        Released {
            boundary: self.boundary,
            count: self.count,
            first_at: clock.rfc3339(self.first),
            last_at: clock.rfc3339(self.last),
            bytes: self.bytes,
            summary: format!("{verb} {} gave back {}, {when}", counted(self.count, noun), bytes(self.bytes)),
        }
    }
}
