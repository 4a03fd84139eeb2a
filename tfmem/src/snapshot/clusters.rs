//! Ranges of addresses near each other, and whether a word may lead into one: asked of every word that is read.

use std::ops::Range;

/// Some ranges, known to 64 KiB.
#[derive(Debug)]
pub struct Clusters {
    all: Vec<Cluster>,
    /// One bit for each block by the lowest bits of its number: hardly any word passes that leads nowhere, and no branch
    /// is needed to tell.
    filter: Box<[u64]>,
}

/// Bits of the filter: 16 KiB of them stay in the nearest cache.
const FILTER: u64 = 1 << 17;
/// Words that are told apart at once.
const BATCH: usize = 1024;

/// One bit for each block of addresses.
#[derive(Debug)]
struct Cluster {
    start: u64,
    len: u64,
    bits: Vec<u64>,
}

const BLOCK: u64 = 64 << 10;
/// Further apart, or longer altogether, another cluster begins: the bits of one take at most 2 MiB.
const FAR: u64 = 4 << 30;
const LONGEST: u64 = 1 << 40;

impl Clusters {
    /// `ranges`: sorted, none empty, none over another.
    #[must_use]
    pub fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all: Vec<Cluster> = Vec::new();
        for range in ranges {
            let start = range.start / BLOCK * BLOCK;
            let near = all.last().is_some_and(|last| {
                range.start.saturating_sub(last.start + last.len) < FAR
                    && range.end.saturating_sub(last.start) < LONGEST
            });
            if !near {
                all.push(Cluster { start, len: 0, bits: Vec::new() });
            }
            if let Some(last) = all.last_mut() {
                last.add(&range);
            }
        }
        let mut filter = vec![0_u64; FILTER as usize / 64].into_boxed_slice();
        for cluster in &all {
            for block in cluster.blocks() {
                if let Some(bits) = filter.get_mut((block % FILTER) as usize / 64) {
                    *bits |= 1 << (block % 64);
                }
            }
        }
        Self { all, filter }
    }

    #[inline]
    #[must_use]
    pub fn holds(&self, word: u64) -> bool {
        self.may_hold(word) != 0 && self.all.iter().any(|cluster| cluster.holds(word))
    }

    /// Hands out the words that lead into a range, with their numbers.
    #[inline]
    pub fn each(&self, words: &[u64], mut found: impl FnMut(usize, u64)) {
        let mut passed = [0_u16; BATCH];
        for (batch, words) in words.chunks(BATCH).enumerate() {
            // Which words pass is as good as random: a branch for each would cost more than all else.
            let mut count = 0;
            for (index, &word) in words.iter().enumerate() {
                passed[count % BATCH] = index as u16;
                count += self.may_hold(word) as usize;
            }
            for &index in passed.get(..count).unwrap_or_default() {
                let Some(&word) = words.get(usize::from(index)) else { continue };
                if self.all.iter().any(|cluster| cluster.holds(word)) {
                    found(batch * BATCH + usize::from(index), word);
                }
            }
        }
    }

    /// 1: it may, 0: it does not.
    #[inline]
    fn may_hold(&self, word: u64) -> u64 {
        let block = word / BLOCK;
        let bits = self.filter.get((block % FILTER) as usize / 64).copied().unwrap_or(0);
        (bits >> (block % 64)) & u64::from(word & 7 == 0)
    }
}

impl Default for Clusters {
    fn default() -> Self {
        Self::of([])
    }
}

impl Cluster {
    fn add(&mut self, range: &Range<u64>) {
        // A range alone may be longer than any cluster: what lies behind is left out.
        let end = range.end.min(self.start + LONGEST);
        let last = (end - 1 - self.start) / BLOCK;
        self.bits.resize(last as usize / 64 + 1, 0);
        for block in (range.start - self.start) / BLOCK..=last {
            if let Some(word) = self.bits.get_mut(block as usize / 64) {
                *word |= 1 << (block % 64);
            }
        }
        self.len = end - self.start;
    }

    /// The numbers of the blocks, counted from address 0.
    fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.start / BLOCK;
        let set = |bits: &u64, bit: u64| bits >> bit & 1 == 1;
        let words = self.bits.iter().enumerate().filter(|(_, bits)| **bits != 0);
        words.flat_map(move |(index, bits)| {
            (0..64).filter(move |&bit| set(bits, bit)).map(move |bit| first + index as u64 * 64 + bit)
        })
    }

    #[inline]
    fn holds(&self, word: u64) -> bool {
        let at = word.wrapping_sub(self.start);
        if at >= self.len {
            return false;
        }
        let block = at / BLOCK;
        self.bits.get(block as usize / 64).is_some_and(|bits| bits & (1 << (block % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_lead_into_a_range() {
        let far = 0x7f00_0000_0000;
        let clusters = Clusters::of([0x1_0000..0x2_0000, 0x5_0008..0x5_0010, far..far + 0x1000]);
        for word in [0x1_0000, 0x1_fff8, 0x5_0008, far, far + 0xff8] {
            assert!(clusters.holds(word), "{word:x}");
        }
        for word in [0, 8, 0x1_0001, 0x2_0000, 0x4_fff8, 0x5_0010, far - 8, far + 0x1000, u64::MAX] {
            assert!(!clusters.holds(word), "{word:x}");
        }
        assert!(!Clusters::default().holds(0));
        // The same block modulo the filter's size.
        assert!(!clusters.holds(0x1_0000 + FILTER * BLOCK));
    }

    #[test]
    fn words_in_batches_are_those_one_by_one() {
        let clusters = Clusters::of([0x1_0000..0x2_0000, 0x7f00_0000_0000..0x7f00_0001_0000]);
        let words: Vec<u64> =
            (0..3000_u64).map(|n| (n % 7) * 0x8000 + n * 4 + (n % 3) / 2 * 0x7f00_0000_0000).collect();
        let mut found = Vec::new();
        clusters.each(&words, |index, word| found.push((index, word)));
        let expected = words.iter().copied().enumerate().filter(|&(_, word)| clusters.holds(word));
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert!(found.len() > 100);
        let all = vec![0x1_0000; 5000];
        let mut count = 0;
        clusters.each(&all, |_, _| count += 1);
        assert_eq!(count, 5000);
    }

    #[test]
    fn a_range_without_measure_costs_no_memory_without_measure() {
        let clusters = Clusters::of([0x1000..u64::MAX >> 8, (u64::MAX >> 8)..(u64::MAX >> 8) + 0x1000]);
        let words: usize = clusters.all.iter().map(|cluster| cluster.bits.len()).sum();
        assert!(words as u64 <= 2 * LONGEST / BLOCK / 64 + 2, "{words}");
        assert!(clusters.holds(0x1000) && clusters.holds(u64::MAX >> 8 & !7));
    }
}
