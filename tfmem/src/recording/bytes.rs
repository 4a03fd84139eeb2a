//! Varints and what is made of them, written and read.

/// Not what a writer of this version wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// The way from `from` to `to`, short in both directions; any two numbers have one.
pub fn put_distance(out: &mut Vec<u8>, from: u64, to: u64) {
    put_signed(out, to.wrapping_sub(from) as i64);
}

/// A number that is mostly a multiple of the page size: the zero bits go to the top.
pub fn put_pages(out: &mut Vec<u8>, value: u64) {
    put(out, value.rotate_right(12));
}

/// The way from `from` to `to` where both are mostly multiples of the page size.
pub fn put_page_distance(out: &mut Vec<u8>, from: u64, to: u64) {
    let distance = to.wrapping_sub(from) as i64;
    if distance & PAGE_MASK == 0 {
        let pages = distance >> 12;
        put(out, (((pages << 1) ^ (pages >> 63)) as u64) << 1);
    } else {
        put(out, ODD);
        put_signed(out, distance);
    }
}

const PAGE_MASK: i64 = 4095;
/// Stands before a distance that is no number of pages.
const ODD: u64 = 1;

pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A place in a run of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    pub at: usize,
    pub end: usize,
}

impl Cursor {
    pub fn byte(&mut self, raw: &[u8]) -> Result<u8, Malformed> {
        if self.at >= self.end {
            return Err(Malformed);
        }
        let byte = *raw.get(self.at).ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    pub fn number(&mut self, raw: &[u8]) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(raw)?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub fn signed(&mut self, raw: &[u8]) -> Result<i64, Malformed> {
        self.number(raw).map(unzigzag)
    }

    pub fn distance(&mut self, raw: &[u8], from: u64) -> Result<u64, Malformed> {
        Ok(from.wrapping_add(self.signed(raw)? as u64))
    }

    pub fn pages(&mut self, raw: &[u8]) -> Result<u64, Malformed> {
        Ok(self.number(raw)?.rotate_left(12))
    }

    pub fn page_distance(&mut self, raw: &[u8], from: u64) -> Result<u64, Malformed> {
        let value = self.number(raw)?;
        let distance = if value & ODD == 0 { unzigzag(value >> 1) << 12 } else { self.signed(raw)? };
        Ok(from.wrapping_add(distance as u64))
    }

    /// A number of 32 bits.
    pub fn small(&mut self, raw: &[u8]) -> Result<u32, Malformed> {
        u32::try_from(self.number(raw)?).map_err(|_| Malformed)
    }

    pub fn small_signed(&mut self, raw: &[u8]) -> Result<i32, Malformed> {
        i32::try_from(self.signed(raw)?).map_err(|_| Malformed)
    }

    /// A length and so many bytes.
    pub fn bytes<'a>(&mut self, raw: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number(raw)?).map_err(|_| Malformed)?;
        self.take(raw, len)
    }

    pub fn take<'a>(&mut self, raw: &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.end).ok_or(Malformed)?;
        let bytes = raw.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(bytes)
    }
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(out: &[u8], f: impl Fn(&mut Cursor, &[u8]) -> Result<T, Malformed>) -> Result<T, Malformed> {
        f(&mut Cursor { at: 0, end: out.len() }, out)
    }

    #[test]
    fn every_number_round_trips() {
        let interesting = (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1, !(1 << bit)]);
        for value in interesting {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(read(&out, Cursor::number), Ok(value));
            out.clear();
            put_signed(&mut out, value as i64);
            assert_eq!(read(&out, Cursor::signed), Ok(value as i64));
            out.clear();
            put_pages(&mut out, value);
            assert_eq!(read(&out, Cursor::pages), Ok(value));
            for from in [0, 1, u64::MAX, 1 << 63] {
                out.clear();
                put_distance(&mut out, from, value);
                assert_eq!(read(&out, |cursor, raw| cursor.distance(raw, from)), Ok(value));
                out.clear();
                put_page_distance(&mut out, from, value);
                assert_eq!(read(&out, |cursor, raw| cursor.page_distance(raw, from)), Ok(value));
            }
        }
    }

    #[test]
    fn pages_are_short_in_both_directions() {
        for to in [0x7fff_0000_0000u64, 0x7fff_0000_0000 + 60 * 4096, 0x7fff_0000_0000 - 31 * 4096] {
            let mut out = Vec::new();
            put_page_distance(&mut out, 0x7fff_0000_0000, to);
            assert!(out.len() <= 2, "{out:?}");
        }
    }

    #[test]
    fn what_is_too_short_or_too_long_is_refused() {
        assert_eq!(read(&[0x80], Cursor::number), Err(Malformed));
        assert_eq!(read(&[0xff; 11], Cursor::number), Err(Malformed));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Cursor::number), Err(Malformed));
        assert_eq!(read(&[5, 1, 2], |cursor, raw| cursor.bytes(raw).map(<[u8]>::len)), Err(Malformed));
        assert_eq!(read(&[0xff; 10], |cursor, raw| cursor.bytes(raw).map(<[u8]>::len)), Err(Malformed));
    }
}
