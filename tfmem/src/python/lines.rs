//! Tables of line numbers in code objects, in the three forms they have had.

use super::layout::Version;

/// The line of the instruction at `offset` bytes; `None`: it has none, or the table is damaged.
pub fn line(version: Version, table: &[u8], first: i32, offset: u64) -> Option<u32> {
    let line = match version.1 {
        ..=9 => increments(table, first, offset),
        10 => ranges(table, first, offset)?,
        _ => locations(table, first, offset)?,
    };
    u32::try_from(line).ok().filter(|&line| line > 0)
}

/// `co_lnotab` (Objects/lnotab_notes.txt): pairs of increments, the address's and the line's.
fn increments(table: &[u8], first: i32, offset: u64) -> i32 {
    let (mut line, mut at) = (first, 0_u64);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        if at > offset {
            break;
        }
        line = line.wrapping_add(i32::from(pair[1].cast_signed()));
    }
    line
}

/// `co_linetable` of 3.10 (PEP 626): pairs of a range's length and the increment of its line; -128: no line.
fn ranges(table: &[u8], first: i32, offset: u64) -> Option<i32> {
    let (mut line, mut end) = (first, 0_u64);
    for pair in table.chunks_exact(2) {
        let delta = pair[1].cast_signed();
        if delta != i8::MIN {
            line = line.wrapping_add(i32::from(delta));
        }
        end += u64::from(pair[0]);
        if offset < end {
            return (delta != i8::MIN).then_some(line);
        }
    }
    None
}

/// `co_linetable` from 3.11 on (Objects/locations.md): entries of a first byte with bit 7 set, kind and length, and what
/// the kind needs.
fn locations(table: &[u8], first: i32, offset: u64) -> Option<i32> {
    const NONE: u8 = 15;
    const LONG: u8 = 14;
    const NO_COLUMNS: u8 = 13;
    let (mut line, mut end, mut at) = (first, 0_u64, 0_usize);
    while let Some(&head) = table.get(at) {
        at += 1;
        let kind = head >> 3 & 15;
        match kind {
            NONE => {}
            LONG | NO_COLUMNS => line = line.wrapping_add(signed(table, &mut at)),
            10..=12 => line = line.wrapping_add(i32::from(kind) - 10),
            _ => {}
        }
        end += (u64::from(head & 7) + 1) * 2;
        if offset < end {
            return (kind != NONE).then_some(line);
        }
        // The rest tells of columns.
        at += table.get(at..)?.iter().take_while(|&&byte| byte & 0x80 == 0).count();
    }
    None
}

/// Six bits in each byte, the lowest first; bit 6: more follow. The lowest bit of all is the sign.
fn signed(table: &[u8], at: &mut usize) -> i32 {
    let (mut value, mut shift) = (0_u32, 0);
    while let Some(&byte) = table.get(*at) {
        *at += 1;
        value |= u32::from(byte & 0x3f).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 0 { magnitude } else { magnitude.wrapping_neg() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_forms() {
        // Two instructions on line 10, two on 12, the rest on 11.
        let lnotab = [4, 2, 4, 0xff];
        let at = |offset| line(Version(3, 9), &lnotab, 10, offset);
        assert_eq!([at(0), at(2), at(4), at(6), at(8), at(100)], [10, 10, 12, 12, 11, 11].map(Some));
        let ranges = [4, 0, 4, 2, 2, 0x80, 4, 0xff];
        let at = |offset| line(Version(3, 10), &ranges, 10, offset);
        assert_eq!([at(0), at(4), at(8), at(10), at(100)], [Some(10), Some(12), None, Some(11), None]);
        // One unit, kind 13 with +2; two units, short form; one, kind 11 (+1); one without a line.
        let locations = [0x80 | 13 << 3, 4, 0x80 | 1, 0x11, 0x80 | 11 << 3, 1, 2, 0x80 | 15 << 3];
        let at = |offset| line(Version(3, 11), &locations, 10, offset);
        assert_eq!([at(0), at(2), at(4), at(6), at(8), at(10)], [Some(12), Some(12), Some(12), Some(13), None, None]);
    }

    proptest! {
        #[test]
        fn no_table_does_harm(table: Vec<u8>, first: i32, offset: u64, minor in 8_u8..16) {
            let _ = line(Version(3, minor), &table, first, offset);
        }
    }
}
