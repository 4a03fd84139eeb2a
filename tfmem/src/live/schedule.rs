//! When to look at which process: at once when something is about to be closed, a grace time after it was closed, and
//! now and then for the totals. Just before the grace time is over its memory is searched for holders, as often as that
//! may be done.

use std::{collections::BTreeMap, time::Duration};

/// Whose rests are everybody's.
const EVERYBODY: u32 = 0;
/// A search for holders may take at most this share of the time, and not follow another one closely.
const SEARCH_REST: u64 = 20;
const SEARCH_EVERY_NS: u64 = 5_000_000_000;
/// A search begins so long before survivors are judged, so that it tells of them: a quarter of the grace time at most.
const LEAD_NS: u64 = 100_000_000;
/// Times kept for one process.
const MOST_DUE: usize = 4096;

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Totals are read this often.
    pub totals_every_ns: u64,
    /// A full look may take at most this share of the time: the next one waits so many times as long as the last took.
    pub rest: u64,
    /// After a look at one process the others wait, too.
    pub for_all: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { totals_every_ns: 500_000_000, rest: 10, for_all: false }
    }
}

#[derive(Debug, Default)]
pub struct Schedule {
    pub pace: Pace,
    /// Full looks that are due at a time, by process. Only the earliest and the latest matter: a look at a time
    /// serves every boundary that was due before.
    due: BTreeMap<u32, Vec<u64>>,
    /// When each process may be looked at again.
    rested: BTreeMap<u32, u64>,
    /// Searches for holders that are due at a time, by process, and when each process may be searched again.
    searches: BTreeMap<u32, Vec<u64>>,
    searched: BTreeMap<u32, u64>,
    totals: u64,
}

impl Schedule {
    pub fn of(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// A full look is wanted at `at`.
    pub fn at(&mut self, pid: u32, at: u64) {
        let due = self.due.entry(pid).or_default();
        // A boundary that comes thousands of times a second: a look serves all that were due before it.
        if due.len() < MOST_DUE {
            due.push(at);
        }
    }

    /// Something was closed at `closed`: what outlives it is known a grace time later.
    pub fn after(&mut self, pid: u32, closed: u64, grace: u64) {
        self.at(pid, closed + grace);
        // Where processes share one pace there are many, and a search takes memory of its own: none are made.
        if self.pace.for_all {
            return;
        }
        let searches = self.searches.entry(pid).or_default();
        if searches.len() < MOST_DUE {
            searches.push(closed + grace - LEAD_NS.min(grace / 4));
        }
    }

    /// The earliest time at which a process is to be looked at.
    pub fn next(&self) -> Option<u64> {
        let due = |(&pid, times): (&u32, &Vec<u64>)| Some((*times.iter().min()?).max(self.rested(pid)));
        let search = |times: &Vec<u64>| times.iter().min().copied();
        self.due.iter().filter_map(due).chain(self.searches.values().filter_map(search)).min()
    }

    /// Processes whose memory is to be searched for holders now. What is due while a process rests is left out: nothing
    /// that is found later would tell of that moment.
    pub fn take_searches(&mut self, now: u64) -> Vec<u32> {
        let mut pids = Vec::new();
        for (&pid, times) in &mut self.searches {
            let before = times.len();
            times.retain(|&at| at > now);
            if times.len() < before && now >= self.searched.get(&pid).copied().unwrap_or(0) {
                pids.push(pid);
            }
        }
        pids
    }

    /// A search of `pid` ended at `now` and took so long.
    pub fn searched(&mut self, pid: u32, now: u64, took: Duration) {
        self.searched.insert(pid, now + SEARCH_EVERY_NS.max(SEARCH_REST * took.as_nanos() as u64));
    }

    /// Processes that must be looked at now. Each is returned once and counts for everything that was due.
    pub fn take_due(&mut self, now: u64) -> Vec<u32> {
        let mut pids = Vec::new();
        for (&pid, times) in &mut self.due {
            let key = if self.pace.for_all { EVERYBODY } else { pid };
            let rested = self.rested.get(&key).copied().unwrap_or(0);
            if now >= rested && times.iter().any(|&at| at <= now) {
                times.retain(|&at| at > now);
                pids.push(pid);
                if self.pace.for_all {
                    break;
                }
            }
        }
        pids
    }

    const fn whose(&self, pid: u32) -> u32 {
        if self.pace.for_all { EVERYBODY } else { pid }
    }

    /// When it may be looked at again.
    fn rested(&self, pid: u32) -> u64 {
        self.rested.get(&self.whose(pid)).copied().unwrap_or(0)
    }

    /// A full look at `pid` ended at `now` and took so long.
    pub fn looked(&mut self, pid: u32, now: u64, took: Duration) {
        let rest = self.pace.rest.saturating_mul(took.as_nanos() as u64);
        self.rested.insert(self.whose(pid), now.saturating_add(rest));
    }

    /// Is it time for the totals?
    pub fn take_totals(&mut self, now: u64) -> bool {
        let due = now >= self.totals;
        if due {
            self.totals = now + self.pace.totals_every_ns;
        }
        due
    }

    pub fn forget(&mut self, pid: u32) {
        for times in [&mut self.due, &mut self.searches] {
            times.remove(&pid);
        }
        for until in [&mut self.rested, &mut self.searched] {
            until.remove(&pid);
        }
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
    fn where_rests_are_for_all_one_look_is_taken_at_a_time() {
        let pace = Pace { rest: 100, for_all: true, ..Pace::default() };
        let mut schedule = Schedule::of(pace);
        schedule.at(1, 10);
        schedule.at(2, 10);
        assert_eq!(schedule.take_due(10), [1]);
        schedule.looked(1, 20, Duration::from_nanos(5));
        assert!(schedule.take_due(519).is_empty());
        assert_eq!(schedule.next(), Some(520));
        assert_eq!(schedule.take_due(520), [2]);
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

    #[test]
    fn searches_come_before_what_they_tell_of_and_seldom() {
        const SECOND: u64 = 1_000_000_000;
        let mut schedule = Schedule::default();
        schedule.after(1, 10 * SECOND, 2 * SECOND);
        assert_eq!(schedule.next(), Some(12 * SECOND - LEAD_NS));
        assert!(schedule.take_searches(12 * SECOND - LEAD_NS - 1).is_empty());
        assert_eq!(schedule.take_searches(12 * SECOND - LEAD_NS), [1]);
        schedule.searched(1, 12 * SECOND, Duration::from_secs(1));
        assert_eq!(schedule.take_due(12 * SECOND), [1]);
        // It took a second: twenty of rest. What is due meanwhile is not looked at later.
        schedule.after(1, 20 * SECOND, 2 * SECOND);
        assert!(schedule.take_searches(22 * SECOND).is_empty());
        assert!(schedule.take_searches(40 * SECOND).is_empty());
        schedule.after(1, 40 * SECOND, 0);
        assert_eq!(schedule.take_searches(40 * SECOND), [1]);
    }
}
