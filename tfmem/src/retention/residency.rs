//! Which bytes of a range are resident, from the sorted ranges that an observation gives.

use crate::event::Addr;

/// Resident bytes inside `[start, start + len)`. `ranges`: (start, bytes), sorted and disjoint.
#[must_use]
pub fn resident_in(ranges: &[(Addr, u64)], start: Addr, len: u64) -> u64 {
    let end = start.saturating_add(len);
    let first = ranges.partition_point(|&(s, n)| s.saturating_add(n) <= start);
    ranges[first..]
        .iter()
        .take_while(|&&(s, _)| s < end)
        .map(|&(s, n)| s.saturating_add(n).min(end).saturating_sub(s.max(start)))
        .fold(0, u64::saturating_add)
}

/// A range list as (start, bytes) made sorted and disjoint.
#[must_use]
pub fn merged(mut ranges: Vec<(Addr, u64)>) -> Vec<(Addr, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(Addr, u64)> = Vec::with_capacity(ranges.len());
    for (start, len) in ranges {
        match out.last_mut() {
            Some((s, n)) if start <= s.saturating_add(*n) => {
                *n = (*n).max(start.saturating_add(len).saturating_sub(*s));
            }
            _ => out.push((start, len)),
        }
    }
    out
}

/// The parts that two sorted, disjoint lists have in common.
#[must_use]
pub fn intersection(a: &[(Addr, u64)], b: &[(Addr, u64)]) -> Vec<(Addr, u64)> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < a.len() && j < b.len() {
        let (a_end, b_end) = (a[i].0.saturating_add(a[i].1), b[j].0.saturating_add(b[j].1));
        let (start, end) = (a[i].0.max(b[j].0), a_end.min(b_end));
        if start < end {
            out.push((start, end - start));
        }
        if a_end <= b_end {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_only_its_own_bytes() {
        let r = [(100, 50), (200, 100), (400, 10)];
        assert_eq!(resident_in(&r, 0, 100), 0);
        assert_eq!(resident_in(&r, 0, 101), 1);
        assert_eq!(resident_in(&r, 120, 100), 30 + 20);
        assert_eq!(resident_in(&r, 210, 10), 10);
        assert_eq!(resident_in(&r, 0, 1000), 160);
        assert_eq!(resident_in(&r, 300, 100), 0);
        assert_eq!(resident_in(&r, 405, u64::MAX), 5);
        assert_eq!(resident_in(&[], 0, 10), 0);
    }

    #[test]
    fn merging_and_intersecting() {
        assert_eq!(merged(vec![(10, 5), (0, 5), (5, 2), (12, 9)]), [(0, 7), (10, 11)]);
        assert_eq!(merged(vec![(0, 100), (10, 5)]), [(0, 100)]);
        assert_eq!(intersection(&[(0, 10), (20, 10)], &[(5, 20)]), [(5, 5), (20, 5)]);
        assert_eq!(intersection(&[(0, 10)], &[(10, 5)]), []);
    }
}
