//! The pointers that one pass over memory met: where they lie and where they lead, in eight bytes each.
//!
//! Who holds what is asked level by level; each level goes through this list instead of through memory.

use super::window::WINDOW;

#[derive(Debug, Default)]
pub struct Pointers {
    /// Where the pieces of memory begin that were read, and their first entries.
    pieces: Vec<(u64, usize)>,
    /// A pointer without its lowest three bits, and below it the number of the word in its piece.
    packed: Vec<u64>,
    most: usize,
    full: bool,
}

/// Words of the largest piece.
const INDEX_BITS: u32 = (WINDOW / 8).trailing_zeros();
/// What a pointer may have so that it fits: more than any process's addresses.
const ADDRESS_BITS: u32 = 64 - INDEX_BITS + 3;

impl Pointers {
    /// At most so many.
    #[must_use]
    pub fn up_to(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// What is added from here on lies in the piece that begins at `start`.
    pub fn piece(&mut self, start: u64) {
        let first = self.packed.len();
        self.pieces.pop_if(|&mut (_, known)| known == first);
        self.pieces.push((start, first));
    }

    /// The word with this number in the piece leads to `address`.
    #[inline]
    pub fn add(&mut self, index: usize, address: u64) {
        if self.packed.len() >= self.most || address >> ADDRESS_BITS != 0 {
            self.full = true;
        } else {
            self.packed.push(address >> 3 << INDEX_BITS | index as u64);
        }
    }

    /// Some did not fit: the list is of no use.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.packed.len()
    }

    /// Hands out each pointer: where it lies, where it leads.
    pub fn each(&self, mut pointer: impl FnMut(u64, u64)) {
        let ends = self.pieces.iter().skip(1).map(|&(_, first)| first).chain([self.packed.len()]);
        for (&(start, first), end) in self.pieces.iter().zip(ends) {
            for &packed in self.packed.get(first..end).unwrap_or_default() {
                let index = packed & ((1 << INDEX_BITS) - 1);
                pointer(start + index * 8, packed >> INDEX_BITS << 3);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_handed_out() {
        let mut pointers = Pointers::up_to(4);
        let far = 0x7fff_ffff_fff8;
        pointers.piece(0x1000);
        pointers.add(0, 0x5000);
        pointers.add(WINDOW / 8 - 1, far);
        pointers.piece(0x9_0000);
        pointers.piece(0xa_0000);
        pointers.add(2, 0x5008);
        let mut all = Vec::new();
        pointers.each(|at, to| all.push((at, to)));
        assert_eq!(all, [(0x1000, 0x5000), (0x1000 + WINDOW as u64 - 8, far), (0xa_0010, 0x5008)]);
        assert!(!pointers.is_full() && pointers.len() == 3);
        pointers.add(3, 0x5000);
        pointers.add(4, 0x5000);
        assert!(pointers.is_full() && pointers.len() == 4);
        let mut pointers = Pointers::up_to(4);
        pointers.add(0, 1 << 60);
        assert!(pointers.is_full());
    }
}
