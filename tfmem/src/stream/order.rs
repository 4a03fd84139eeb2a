//! Restores the order of time.
//!
//! Records of several CPUs meet in one buffer, and some are stamped with an earlier moment than the one at which they
//! were sent (an unmapping counts from its beginning). So an event is held back until everything that could still
//! come before it has arrived: a window of time. What comes later than that is passed on and counted.

use std::collections::VecDeque;

use crate::event::Event;

/// How long an event waits, ns. An unmapping of many gigabytes takes tens of milliseconds.
pub const WINDOW_NS: u64 = 100_000_000;

#[derive(Debug, Default)]
pub struct Order {
    /// Sorted by time; equal times keep the order of arrival.
    waiting: VecDeque<Event>,
    /// The latest time that was passed on.
    passed: u64,
    late: u64,
}

impl Order {
    /// Takes one event. Arrivals are nearly sorted: the place is found from the back in a step or two.
    pub fn push(&mut self, event: Event) {
        if event.at < self.passed {
            self.late += 1;
        }
        let mut place = self.waiting.len();
        while place > 0 && self.waiting.get(place - 1).is_some_and(|before| before.at > event.at) {
            place -= 1;
        }
        if place == self.waiting.len() {
            self.waiting.push_back(event);
        } else {
            self.waiting.insert(place, event);
        }
    }

    /// Passes on, in order, what is older than `now` less the window.
    pub fn release(&mut self, now: u64, out: &mut Vec<Event>) {
        self.release_until(now.saturating_sub(WINDOW_NS), out);
    }

    /// Passes on everything.
    pub fn flush(&mut self, out: &mut Vec<Event>) {
        self.release_until(u64::MAX, out);
    }

    fn release_until(&mut self, until: u64, out: &mut Vec<Event>) {
        while self.waiting.front().is_some_and(|event| event.at <= until) {
            if let Some(event) = self.waiting.pop_front() {
                self.passed = self.passed.max(event.at);
                out.push(event);
            }
        }
    }

    /// The latest time that was passed on.
    #[must_use]
    pub const fn passed(&self) -> u64 {
        self.passed
    }

    /// Events that came too late to be put where they belong.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Body;

    fn at(at: u64) -> Event {
        Event { at, pid: 1, tid: 1, stack: None, body: Body::Exec }
    }

    fn times(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.at).collect()
    }

    #[test]
    fn order_is_restored_inside_the_window() {
        let mut order = Order::default();
        let mut out = Vec::new();
        for t in [5, 3, 9, 4] {
            order.push(at(t));
        }
        order.release(WINDOW_NS + 5, &mut out);
        assert_eq!(times(&out), [3, 4, 5]);
        order.flush(&mut out);
        assert_eq!(times(&out), [3, 4, 5, 9]);
        assert_eq!(order.late(), 0);
    }

    #[test]
    fn what_comes_too_late_is_passed_on_and_counted() {
        let mut order = Order::default();
        let mut out = Vec::new();
        order.push(at(10));
        order.release(WINDOW_NS + 10, &mut out);
        order.push(at(2));
        order.flush(&mut out);
        assert_eq!(times(&out), [10, 2]);
        assert_eq!(order.late(), 1);
    }

    #[test]
    fn equal_times_keep_their_order_of_arrival() {
        let mut order = Order::default();
        let mut out = Vec::new();
        for tid in 0..4 {
            order.push(Event { tid, ..at(1) });
        }
        order.flush(&mut out);
        assert_eq!(out.iter().map(|event| event.tid).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
