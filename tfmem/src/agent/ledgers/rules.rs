//! Who shall be traced in full, by what is seen from outside: resident memory that is more after each boundary than it
//! was after the one before.

use std::collections::VecDeque;

use crate::agent::config::Rule;

/// Boundaries that are remembered of a process.
const MOST: usize = 256;

#[derive(Debug, Default)]
pub struct Growth {
    first: Option<u64>,
    after: VecDeque<u64>,
}

impl Growth {
    /// A boundary is over, and so much was resident then.
    pub fn add(&mut self, bytes: u64) {
        self.first.get_or_insert(bytes);
        self.after.push_back(bytes);
        if self.after.len() > MOST {
            self.after.pop_front();
        }
    }

    pub fn last(&self) -> Option<u64> {
        self.after.back().copied()
    }

    /// More than after the first boundary.
    pub fn since_first(&self) -> Option<i64> {
        let (first, last) = (self.first?, self.last()?);
        Some(i64::try_from(i128::from(last) - i128::from(first)).unwrap_or(i64::MAX))
    }

    /// It grew with each of the last boundaries, and by so much in all.
    pub fn meets(&self, rule: Rule) -> bool {
        let wanted = rule.boundaries as usize + 1;
        let Some(skip) = self.after.len().checked_sub(wanted) else { return false };
        let last: Vec<u64> = self.after.iter().skip(skip).copied().collect();
        let grew = last.windows(2).all(|pair| matches!(pair, [before, after] if after > before));
        let (first, end) = (last.first().copied().unwrap_or(0), last.last().copied().unwrap_or(0));
        grew && end.saturating_sub(first) >= rule.grew_by.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::Bytes;

    fn growth(after: &[u64]) -> Growth {
        let mut growth = Growth::default();
        for bytes in after {
            growth.add(*bytes);
        }
        growth
    }

    #[test]
    fn growth_is_in_a_row_and_large_enough() {
        let rule = Rule { boundaries: 3, grew_by: Bytes(30) };
        assert!(growth(&[100, 110, 120, 130]).meets(rule));
        assert!(growth(&[500, 100, 110, 120, 130]).meets(rule), "what came before does not matter");
        assert!(!growth(&[100, 110, 120]).meets(rule), "too few");
        assert!(!growth(&[100, 110, 110, 140]).meets(rule), "not each time");
        assert!(!growth(&[100, 101, 102, 103]).meets(rule), "too little");
        assert!(!growth(&[]).meets(rule));
    }

    #[test]
    fn growth_is_told_since_the_first_boundary() {
        assert_eq!(growth(&[100, 90]).since_first(), Some(-10));
        assert_eq!(growth(&[]).since_first(), None);
        let many: Vec<u64> = (0..1000).collect();
        assert_eq!(growth(&many).since_first(), Some(999));
    }
}
