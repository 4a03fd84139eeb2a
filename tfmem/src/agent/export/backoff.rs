//! How long to wait after a failure: twice as long each time, somewhere in the second half of that, and never shorter
//! than the other side asked for. Hosts that failed together do not come back together.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// `Retry-After` is obeyed up to this.
const MOST_ASKED: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub struct Backoff {
    failures: u32,
    /// A generator that needs not be good, only different on each host (Marsaglia's xorshift64).
    random: u64,
}

impl Backoff {
    pub const fn new(seed: u64) -> Self {
        Self { failures: 0, random: seed | 1 }
    }

    pub const fn worked(&mut self) {
        self.failures = 0;
    }

    /// How long to wait now.
    pub fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let wait = whole / 2 + self.part_of(whole / 2);
        asked.map_or(wait, |asked| wait.max(asked.min(MOST_ASKED)))
    }

    /// Somewhere from nothing to all of it.
    pub fn part_of(&mut self, whole: Duration) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        whole.mul_f64((self.random >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_have_an_end() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<Duration> = (0..20).map(|_| backoff.failed(None)).collect();
        for (n, wait) in waits.iter().enumerate() {
            let whole = Duration::from_secs(1 << n.min(16)).min(LONGEST);
            assert!(*wait >= whole / 2 && *wait <= whole, "{n}: {wait:?}");
        }
        backoff.worked();
        assert!(backoff.failed(None) <= FIRST);
    }

    #[test]
    fn what_is_asked_for_is_obeyed_within_reason() {
        let mut backoff = Backoff::new(7);
        assert_eq!(backoff.failed(Some(Duration::from_secs(30))), Duration::from_secs(30));
        assert_eq!(backoff.failed(Some(Duration::from_secs(1 << 40))), MOST_ASKED);
    }

    #[test]
    fn hosts_differ() {
        let first = |seed| Backoff::new(seed).part_of(Duration::from_secs(60));
        let all: std::collections::BTreeSet<Duration> = (0..100).map(|seed| first(seed * 7919 + 13)).collect();
        assert!(all.len() > 45, "{}", all.len());
    }
}
