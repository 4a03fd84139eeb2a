//! The index over a table's rows, as BPF searches them: blocks of code of equal size.

use tfmem_common::unwind::{SEARCH_STEPS, SMALLEST_BLOCK, block, row_address};

/// Which rows may hold in which block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    pub shift: u32,
    pub first_block: u32,
    /// As in [`tfmem_common::unwind::block`], rows counted from the table's first.
    pub blocks: Vec<u64>,
}

/// Rows of one block that the search can tell apart.
const MOST_IN_BLOCK: usize = 1 << (SEARCH_STEPS - 1);

impl Index {
    /// The index with about one block for each row, and no block with more rows than the search can tell apart.
    #[must_use]
    pub fn of(rows: &[u64]) -> Self {
        let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else { return Self::default() };
        let extent = u64::from(row_address(last) - row_address(first)).max(1);
        let mut shift = (extent / rows.len() as u64).max(1).ilog2().clamp(SMALLEST_BLOCK, 31);
        loop {
            let index = Self::with(rows, shift, row_address(first), row_address(last));
            let fits = index.blocks.iter().all(|&block| (block >> 32) as usize <= MOST_IN_BLOCK);
            if fits || shift == SMALLEST_BLOCK {
                return index;
            }
            shift -= 1;
        }
    }

    fn with(rows: &[u64], shift: u32, first: u32, last: u32) -> Self {
        let (first_block, last_block) = (first >> shift, last >> shift);
        let mut blocks = Vec::with_capacity((last_block - first_block + 1) as usize);
        let mut begin = 0;
        for number in first_block..=last_block {
            let (start, end) = (u64::from(number) << shift, u64::from(number + 1) << shift);
            while rows.get(begin + 1).is_some_and(|&row| u64::from(row_address(row)) <= start) {
                begin += 1;
            }
            let rest = rows.get(begin..).unwrap_or_default();
            let count = rest.partition_point(|&row| u64::from(row_address(row)) < end);
            blocks.push(block(begin as u32, count as u32));
        }
        Self { shift, first_block, blocks }
    }
}

#[cfg(test)]
mod tests {
    use tfmem_common::unwind::{Rule, row};

    use super::*;

    /// The search as BPF does it.
    fn find(index: &Index, rows: &[u64], address: u32) -> Option<u64> {
        let block = *index.blocks.get((address >> index.shift).checked_sub(index.first_block)? as usize)?;
        let first = block as u32 as usize;
        let inside = rows.get(first..first + (block >> 32) as usize)?;
        let behind = inside.partition_point(|&row| row_address(row) <= address);
        inside.get(behind.checked_sub(1)?).copied()
    }

    #[test]
    fn each_address_finds_the_row_before_it() {
        for spread in [3, 700, 5_000, 90_000] {
            let rows: Vec<u64> = (0..3_000_u32).map(|n| row(70_000 + n * spread + n % 3, Rule::END)).collect();
            let index = Index::of(&rows);
            assert!(index.blocks.len() <= 2 * rows.len() + 2, "{} blocks", index.blocks.len());
            for address in (0..row_address(rows[2_999]) + 10).step_by(spread as usize / 2) {
                let behind = rows.partition_point(|&row| row_address(row) <= address);
                let expected = behind.checked_sub(1).map(|at| rows[at]);
                assert_eq!(find(&index, &rows, address), expected, "{address} of {spread}");
            }
        }
    }

    #[test]
    fn crowded_blocks_stay_small() {
        // One row far away would make the blocks large.
        let rows: Vec<u64> = (0..100_000).map(|n| row(n, Rule::END)).chain([row(u32::MAX, Rule::NONE)]).collect();
        let index = Index::of(&rows);
        assert!(index.blocks.iter().all(|&block| (block >> 32) as usize <= MOST_IN_BLOCK));
        assert_eq!(find(&index, &rows, 54_321), Some(row(54_321, Rule::END)));
        assert!(Index::of(&[]).blocks.is_empty());
    }
}
