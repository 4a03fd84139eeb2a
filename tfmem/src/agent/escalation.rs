//! Which processes are traced in full, since when and until when. Pure: it is told the time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use thiserror::Error;

use super::config::Escalation;

/// Longer than this nobody traces in full by hand.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Who wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Hand,
    Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("as many processes as the configuration allows are traced in full already")]
    TooMany,
    #[error("the agent is above one of its limits")]
    OverLimit,
    #[error("it was traced in full a short while ago")]
    Rests,
    #[error("a time from 1s to 24h is needed")]
    Time,
}

/// What became of the wishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub by_hand: u64,
    pub by_rule: u64,
    pub refused: u64,
    /// Ended before their time because the agent was above a limit.
    pub cut_short: u64,
}

#[derive(Debug)]
pub struct Escalations {
    settings: Escalation,
    /// Until when.
    running: BTreeMap<u32, Instant>,
    /// When a rule may name a process again.
    rested: BTreeMap<u32, Instant>,
    over_limit: bool,
    pub counts: Counts,
}

impl Escalations {
    pub fn new(settings: Escalation) -> Self {
        let (running, rested) = (BTreeMap::new(), BTreeMap::new());
        Self { settings, running, rested, over_limit: false, counts: Counts::default() }
    }

    pub fn configure(&mut self, settings: Escalation) {
        self.settings = settings;
    }

    /// Begins, or goes on for longer. By rule for the configured time.
    ///
    /// # Errors
    /// Says why not.
    pub fn begin(&mut self, pid: u32, time: Option<Duration>, by: By, now: Instant) -> Result<(), Refused> {
        let result = self.try_begin(pid, time.unwrap_or(self.settings.time.0), by, now);
        match (result, by) {
            (Err(_), _) => self.counts.refused += 1,
            (Ok(()), By::Hand) => self.counts.by_hand += 1,
            (Ok(()), By::Rule) => self.counts.by_rule += 1,
        }
        result
    }

    fn try_begin(&mut self, pid: u32, time: Duration, by: By, now: Instant) -> Result<(), Refused> {
        if time < Duration::from_secs(1) || time > LONGEST {
            return Err(Refused::Time);
        }
        if self.over_limit {
            return Err(Refused::OverLimit);
        }
        if by == By::Rule && self.rested.get(&pid).is_some_and(|&rested| now < rested) {
            return Err(Refused::Rests);
        }
        if !self.running.contains_key(&pid) && self.running.len() >= self.settings.at_once as usize {
            return Err(Refused::TooMany);
        }
        let until = self.running.entry(pid).or_insert(now);
        *until = (*until).max(now + time);
        self.rested.insert(pid, *until + self.settings.rest.0);
        Ok(())
    }

    /// Whose time is over.
    pub fn over(&mut self, now: Instant) -> Vec<u32> {
        let over: Vec<u32> = self.running.iter().filter(|&(_, &until)| until <= now).map(|(&pid, _)| pid).collect();
        self.running.retain(|pid, _| !over.contains(pid));
        self.rested.retain(|_, &mut rested| rested > now);
        over
    }

    /// A limit is passed: all end now, and none begins before that is over.
    pub fn over_limit(&mut self, over: bool) -> Vec<u32> {
        self.over_limit = over;
        if !over {
            return Vec::new();
        }
        let ended: Vec<u32> = std::mem::take(&mut self.running).into_keys().collect();
        self.counts.cut_short += ended.len() as u64;
        ended
    }

    /// The process is gone.
    pub fn gone(&mut self, alive: impl Fn(u32) -> bool) {
        self.running.retain(|&pid, _| alive(pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::Time;

    fn escalations() -> Escalations {
        Escalations::new(Escalation { time: Time::secs(60), at_once: 2, rest: Time::secs(3600), rule: Vec::new() })
    }

    #[test]
    fn a_time_ends_and_a_rule_rests() {
        let (mut all, start) = (escalations(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(all.begin(1, None, By::Rule, at(0)), Ok(()));
        assert!(all.over(at(59)).is_empty());
        assert_eq!(all.over(at(60)), [1]);
        assert_eq!(all.begin(1, None, By::Rule, at(61)), Err(Refused::Rests));
        assert_eq!(all.begin(1, Some(Duration::from_secs(5)), By::Hand, at(61)), Ok(()), "a person may");
        assert_eq!(all.over(at(66)), [1]);
        assert_eq!(all.begin(1, None, By::Rule, at(66 + 3600)), Ok(()));
        assert_eq!(all.counts, Counts { by_hand: 1, by_rule: 2, refused: 1, cut_short: 0 });
    }

    #[test]
    fn there_are_only_so_many_at_once() {
        let (mut all, start) = (escalations(), Instant::now());
        for pid in [1, 2, 1] {
            assert_eq!(all.begin(pid, None, By::Hand, start), Ok(()));
        }
        assert_eq!(all.begin(3, None, By::Hand, start), Err(Refused::TooMany));
        all.gone(|pid| pid != 2);
        assert_eq!(all.begin(3, None, By::Hand, start), Ok(()));
        assert_eq!(all.begin(4, Some(Duration::from_secs(0)), By::Hand, start), Err(Refused::Time));
    }

    #[test]
    fn above_a_limit_all_end() {
        let (mut all, start) = (escalations(), Instant::now());
        all.begin(1, None, By::Hand, start).unwrap();
        assert_eq!(all.over_limit(true), [1]);
        assert_eq!(all.begin(2, None, By::Hand, start), Err(Refused::OverLimit));
        assert!(all.over_limit(false).is_empty());
        assert_eq!(all.begin(2, None, By::Hand, start), Ok(()));
        assert_eq!(all.counts.cut_short, 1);
    }
}
