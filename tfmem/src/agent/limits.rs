//! The agent watches itself: what it uses, against what it may, and what follows. Pure but for [`Usage::read`].

use std::{
    collections::VecDeque,
    fs,
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};

use super::config::Limits;
use crate::{live::Pace, target::info};

/// The averages are over these times.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(10);
/// Looks become rarer by at most this factor.
const MOST_STRETCHED: u32 = 64;
/// What is tried against a limit gets so long to show.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the agent uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads since it began.
    pub cpu: Duration,
    pub memory: u64,
    pub files: u64,
}

impl Usage {
    #[must_use]
    pub fn read() -> Self {
        let time = |time: nix::sys::time::TimeVal| {
            Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
        };
        let cpu = getrusage(UsageWho::RUSAGE_SELF).map(|usage| time(usage.user_time()) + time(usage.system_time()));
        Self {
            cpu: cpu.unwrap_or_default(),
            memory: info::kib(std::process::id(), "VmRSS:").unwrap_or(0) * 1024,
            files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        }
    }
}

/// How often a limit had an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub cpu: u64,
    pub cpu_hard: u64,
    pub memory: u64,
    pub files: u64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The pace of looks changed.
    pub pace: Option<Pace>,
    /// Full tracing is not allowed; at the beginning of that all of it ends.
    pub no_full: bool,
    /// Give up what only serves later.
    pub trim: bool,
    /// Take no further processes.
    pub take_none: bool,
}

#[derive(Debug)]
pub struct Governor {
    limits: Limits,
    pace: Pace,
    stretched: u32,
    /// When, and CPU time until then.
    samples: VecDeque<(Instant, Duration)>,
    changed: Option<Instant>,
    trimmed: Option<Instant>,
    pub hits: Hits,
    /// Share of a core over the long time.
    pub cpu: f64,
}

impl Governor {
    pub fn new(limits: &Limits, pace: Pace) -> Self {
        Self {
            limits: limits.clone(),
            pace,
            stretched: 1,
            samples: VecDeque::new(),
            changed: None,
            trimmed: None,
            hits: Hits::default(),
            cpu: 0.0,
        }
    }

    pub fn configure(&mut self, limits: &Limits, pace: Pace) {
        self.limits = limits.clone();
        self.pace = pace;
    }

    /// How much rarer than configured looks are.
    #[must_use]
    pub const fn stretched(&self) -> u32 {
        self.stretched
    }

    #[must_use]
    pub const fn stretched_pace(&self) -> Pace {
        let by = self.stretched as u64;
        Pace {
            totals_every_ns: self.pace.totals_every_ns.saturating_mul(by),
            rest: self.pace.rest.saturating_mul(by),
            for_all: self.pace.for_all,
        }
    }

    /// To be called once a second.
    pub fn judge(&mut self, usage: Usage, now: Instant) -> Effects {
        self.samples.push_back((now, usage.cpu));
        while self.samples.get(1).is_some_and(|&(at, _)| now.duration_since(at) >= LONG) {
            self.samples.pop_front();
        }
        let mut effects = Effects::default();
        self.cpu = self.share(now, LONG);
        let short = self.share(now, SHORT);
        if short > self.limits.cpu_hard.of_core() && self.full(now, SHORT) {
            self.hits.cpu_hard += 1;
            effects.no_full = true;
        }
        let settled = self.changed.is_none_or(|at| now.duration_since(at) >= PATIENCE);
        if settled && self.full(now, SHORT) {
            let limit = self.limits.cpu.of_core();
            let before = self.stretched;
            if self.cpu > limit && self.full(now, LONG) {
                self.stretched = (self.stretched * 2).min(MOST_STRETCHED);
            } else if self.cpu < limit / 4.0 {
                self.stretched = (self.stretched / 2).max(1);
            }
            if before != self.stretched {
                self.hits.cpu += u64::from(self.stretched > before);
                self.changed = Some(now);
                effects.pace = Some(self.stretched_pace());
            }
        }
        if usage.memory > self.limits.memory.0 {
            effects.no_full = true;
            effects.take_none = true;
            effects.trim = self.trimmed.is_none_or(|at| now.duration_since(at) >= PATIENCE);
            if effects.trim {
                self.hits.memory += 1;
                self.trimmed = Some(now);
            }
        }
        // Some are needed for what is under way.
        if usage.files.saturating_add(64) > u64::from(self.limits.files) {
            self.hits.files += 1;
            effects.no_full = true;
            effects.take_none = true;
        }
        effects
    }

    /// Are there samples of so long a time?
    fn full(&self, now: Instant, time: Duration) -> bool {
        self.samples.front().is_some_and(|&(at, _)| now.duration_since(at) >= time)
    }

    /// The share of a core since `time` ago (or since the beginning, if that was later).
    fn share(&self, now: Instant, time: Duration) -> f64 {
        let first = self.samples.iter().rev().find(|&&(at, _)| now.duration_since(at) >= time);
        let (Some(&(from, before)), Some(&(to, after))) = (first.or(self.samples.front()), self.samples.back()) else {
            return 0.0;
        };
        let wall = to.duration_since(from).as_secs_f64();
        if wall > 0.0 { after.saturating_sub(before).as_secs_f64() / wall } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::{Bytes, Share};

    struct Run {
        governor: Governor,
        start: Instant,
        cpu: Duration,
        second: u64,
    }

    impl Run {
        fn new() -> Self {
            let limits = Limits {
                cpu: Share::percent(1),
                cpu_hard: Share::percent(5),
                memory: Bytes::mib(64),
                files: 1000,
                ..Limits::default()
            };
            let pace = Pace { totals_every_ns: 10, rest: 100, for_all: true };
            Self { governor: Governor::new(&limits, pace), start: Instant::now(), cpu: Duration::ZERO, second: 0 }
        }

        /// Seconds with this use each; what was ever to be done.
        fn seconds(&mut self, n: u64, cpu_ms: u64, mib: u64, files: u64) -> Effects {
            let mut all = Effects::default();
            for _ in 0..n {
                self.second += 1;
                self.cpu += Duration::from_millis(cpu_ms);
                let usage = Usage { cpu: self.cpu, memory: mib << 20, files };
                let effects = self.governor.judge(usage, self.start + Duration::from_secs(self.second));
                all.pace = effects.pace.or(all.pace);
                all.no_full |= effects.no_full;
                all.trim |= effects.trim;
                all.take_none |= effects.take_none;
            }
            all
        }
    }

    #[test]
    fn below_all_limits_nothing_happens() {
        let mut run = Run::new();
        assert_eq!(run.seconds(200, 5, 40, 100), Effects::default());
        assert_eq!(run.governor.hits, Hits::default());
    }

    #[test]
    fn too_much_cpu_makes_looks_rarer_and_rest_brings_them_back() {
        let mut run = Run::new();
        let effects = run.seconds(75, 20, 40, 100);
        assert_eq!(effects.pace.map(|pace| pace.rest), Some(200).max(effects.pace.map(|pace| pace.rest)));
        assert!(run.governor.stretched() > 1 && run.governor.hits.cpu > 0);
        assert!(!effects.no_full);
        run.seconds(300, 1, 40, 100);
        assert_eq!(run.governor.stretched(), 1);
        assert_eq!(run.governor.stretched_pace().rest, 100);
    }

    #[test]
    fn far_too_much_cpu_ends_full_tracing_within_seconds() {
        let mut run = Run::new();
        run.seconds(20, 5, 40, 100);
        assert!(run.seconds(10, 200, 40, 100).no_full);
        assert!(run.governor.hits.cpu_hard > 0);
        assert!(!run.seconds(1, 0, 40, 100).no_full || run.governor.cpu > 0.01);
    }

    #[test]
    fn memory_and_files_have_their_effects() {
        let mut run = Run::new();
        let effects = run.seconds(3, 1, 65, 100);
        assert!(effects.trim && effects.take_none && effects.no_full);
        assert_eq!(run.governor.hits.memory, 1, "once in a while");
        let effects = run.seconds(1, 1, 40, 990);
        assert!(effects.take_none && !effects.trim);
        assert_eq!(run.governor.hits.files, 1);
        assert_eq!(run.seconds(1, 1, 40, 100), Effects::default());
    }
}
