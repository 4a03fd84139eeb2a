//! Which file's code is at an address of a process, and which rule holds there.

use tfmem_common::unwind::{MOST_RANGES, RANGE_STEPS, Range, Rule, SEARCH_STEPS, row_address, row_rule};

use super::maps::{Scratch, UNWIND_BLOCKS, UNWIND_FILES, UNWIND_RANGES, UNWIND_ROWS};

/// The file and the address in it. The place is remembered.
#[inline(always)]
pub fn place(scratch: &mut Scratch, address: u64) -> Option<(u32, u64)> {
    if let Some(found) = within(&scratch.range, address) {
        return Some(found);
    }
    let range = find(scratch.ranges, address)?;
    scratch.range = range;
    within(&range, address)
}

#[inline(always)]
fn within(range: &Range, address: u64) -> Option<(u32, u64)> {
    let inside = address.wrapping_sub(range.start);
    if range.file == 0 || inside >= u64::from(range.pages) << 12 {
        return None;
    }
    Some((range.file, u64::from(range.address).wrapping_add(inside)))
}

/// The last range that begins at or before an address.
#[inline(always)]
fn find(ranges: u32, address: u64) -> Option<Range> {
    let ranges = UNWIND_RANGES.get_ptr(ranges)?;
    // SAFETY: a valid map value; the loader never writes one that is in use.
    let ranges = unsafe { &*ranges };
    let mut low = 0;
    let mut high = ranges.count as usize;
    for _ in 0..=RANGE_STEPS {
        if low >= high {
            break;
        }
        let middle = (low + high) / 2;
        if ranges.ranges[middle & (MOST_RANGES - 1)].start <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return None;
    }
    Some(ranges.ranges[(low - 1) & (MOST_RANGES - 1)])
}

/// Is an address code of a file?
#[inline(always)]
pub fn is_known(ranges: u32, address: u64) -> bool {
    find(ranges, address).is_some_and(|range| within(&range, address).is_some())
}

/// The rule at an address of a file.
#[inline(always)]
pub fn rule(file: u32, address: u64) -> Rule {
    try_rule(file, address as u32).unwrap_or(Rule::NONE)
}

#[inline(always)]
fn try_rule(file: u32, address: u32) -> Option<Rule> {
    let table = UNWIND_FILES.get(file)?;
    let block = (address >> (table.shift & 31)).checked_sub(table.first_block)?;
    if block >= table.blocks {
        return None;
    }
    let block = *UNWIND_BLOCKS.get(table.index + block)?;
    let first = block as u32;
    let mut low = 0;
    let mut high = (block >> 32) as u32;
    for _ in 0..SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = (low + high) / 2;
        if row_address(*UNWIND_ROWS.get(first + middle)?) <= address {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return None;
    }
    Some(row_rule(*UNWIND_ROWS.get(first + low - 1)?))
}
