//! When to look at which process: at once when something is about to be closed, a grace time after it was closed, and
//! now and then for the totals.

use std::{collections::BTreeMap, time::Duration};

/// Totals are read this often.
const TOTALS_EVERY_NS: u64 = 500_000_000;
/// A full look may take at most this share of the time: the next one waits ten times as long as the last one took.
const REST: u64 = 10;
/// Times kept for one process.
const MOST_DUE: usize = 4096;

#[derive(Debug, Default)]
pub struct Schedule {
    /// Full looks that are due at a time, by process. Only the earliest and the latest matter: a look at a time
    /// serves every boundary that was due before.
    due: BTreeMap<u32, Vec<u64>>,
    /// When each process may be looked at again.
    rested: BTreeMap<u32, u64>,
    totals: u64,
}

impl Schedule {
    /// A full look is wanted at `at`.
    pub fn at(&mut self, pid: u32, at: u64) {
        let due = self.due.entry(pid).or_default();
        // A boundary that comes thousands of times a second: a look serves all that were due before it.
        if due.len() < MOST_DUE {
            due.push(at);
        }
    }

    /// The earliest time at which a process is to be looked at.
    pub fn next(&self) -> Option<u64> {
        let due =
            |(pid, times): (&u32, &Vec<u64>)| Some((*times.iter().min()?).max(*self.rested.get(pid).unwrap_or(&0)));
        self.due.iter().filter_map(due).min()
    }

    /// Processes that must be looked at now. Each is returned once and counts for everything that was due.
    pub fn take_due(&mut self, now: u64) -> Vec<u32> {
        let mut pids = Vec::new();
        for (&pid, times) in &mut self.due {
            let rested = self.rested.get(&pid).copied().unwrap_or(0);
            if now >= rested && times.iter().any(|&at| at <= now) {
                times.retain(|&at| at > now);
                pids.push(pid);
            }
        }
        pids
    }

    /// A full look at `pid` ended at `now` and took so long.
    pub fn looked(&mut self, pid: u32, now: u64, took: Duration) {
        self.rested.insert(pid, now + REST * took.as_nanos() as u64);
    }

    /// Is it time for the totals?
    pub fn take_totals(&mut self, now: u64) -> bool {
        let due = now >= self.totals;
        if due {
            self.totals = now + TOTALS_EVERY_NS;
        }
        due
    }

    pub fn forget(&mut self, pid: u32) {
        self.due.remove(&pid);
        self.rested.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_serves_everything_that_was_due() {
        let mut schedule = Schedule::default();
        for at in [10, 20, 30] {
            schedule.at(1, at);
        }
        assert_eq!(schedule.next(), Some(10));
        assert!(schedule.take_due(5).is_empty());
        assert_eq!(schedule.take_due(25), [1]);
        assert!(schedule.take_due(25).is_empty());
        assert_eq!(schedule.next(), Some(30));
        assert_eq!(schedule.take_due(35), [1]);
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_long_look_is_followed_by_a_longer_rest() {
        let mut schedule = Schedule::default();
        schedule.looked(1, 1_000, Duration::from_nanos(100));
        schedule.at(1, 1_500);
        assert!(schedule.take_due(1_600).is_empty());
        assert_eq!(schedule.next(), Some(2_000));
        assert_eq!(schedule.take_due(2_000), [1]);
    }
}
