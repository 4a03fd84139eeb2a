//! What pointers are looked for: quick to say no.

use std::ops::Range;

use crate::observe::pagemap::PAGE;

/// Ranges that a pointer may lead into, with the numbers of their nodes.
#[derive(Debug, Default)]
pub struct Targets {
    /// Sorted; `exact`: only a pointer to the beginning counts.
    ranges: Vec<(Range<u64>, usize, bool)>,
    /// From the beginning of the first to the end of the last.
    from: u64,
    len: u64,
    /// One bit for each page that may hold one, by the lowest bits of its number.
    pages: Vec<u64>,
}

const PAGE_BITS: u64 = 1 << 20;

impl Targets {
    #[must_use]
    pub fn new(mut ranges: Vec<(Range<u64>, usize, bool)>) -> Self {
        ranges.sort_unstable_by_key(|(range, ..)| range.start);
        let mut pages = vec![0_u64; PAGE_BITS as usize / 64];
        for (range, _, exact) in &ranges {
            let last = if *exact { range.start } else { range.end.saturating_sub(1).max(range.start) } / PAGE;
            let first = range.start / PAGE;
            for page in first..=last.min(first + PAGE_BITS) {
                let bit = page % PAGE_BITS;
                if let Some(word) = pages.get_mut(bit as usize / 64) {
                    *word |= 1 << (bit % 64);
                }
            }
        }
        let from = ranges.first().map_or(0, |(first, ..)| first.start);
        let end = ranges.iter().map(|(range, ..)| range.end).max().unwrap_or(0);
        Self { ranges, from, len: end.saturating_sub(from), pages }
    }

    /// The first test of a word, which hardly any passes that is no pointer.
    #[inline]
    #[must_use]
    pub const fn may_hit(&self, word: u64) -> bool {
        word.wrapping_sub(self.from) < self.len
    }

    /// The node that a word points to.
    #[inline]
    #[must_use]
    pub fn hit(&self, word: u64) -> Option<usize> {
        let bit = word / PAGE % PAGE_BITS;
        if word & 7 != 0 || self.pages.get(bit as usize / 64)? & (1 << (bit % 64)) == 0 {
            return None;
        }
        let next = self.ranges.partition_point(|(range, ..)| range.end <= word);
        let (range, node, exact) = self.ranges.get(next)?;
        (range.start <= word && (!exact || range.start == word)).then_some(*node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_and_insides() {
        let targets = Targets::new(vec![(0x5000..0x9000, 1, false), (0x1010..0x1040, 0, true)]);
        for (word, node) in [
            (0x1010, Some(0)),
            (0x1018, None),
            (0x5000, Some(1)),
            (0x8ff8, Some(1)),
            (0x8ff9, None),
            (0x9000, None),
            (0x4ff8, None),
        ] {
            assert_eq!(targets.hit(word), node, "{word:x}");
            assert!(node.is_none() || targets.may_hit(word));
        }
        // The same place 4 GiB on: the bit is set, the range is another.
        assert_eq!(targets.hit(0x5000 + (PAGE_BITS * PAGE)), None);
        assert!(!targets.may_hit(0x9000) && !targets.may_hit(0) && !Targets::new(Vec::new()).may_hit(0));
    }
}
