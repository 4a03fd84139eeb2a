//! A sliding look at memory through one buffer: what walks upwards reads each page once.

use zerocopy::IntoBytes as _;

use super::space::Space;
use crate::target::memory::Memory;

/// The largest amount that is read at once: larger reads are slower (they leave the caches), smaller ones too.
pub const WINDOW: usize = 256 << 10;

pub struct Window<'a, M> {
    memory: &'a M,
    space: &'a Space,
    buffer: Vec<u64>,
    start: u64,
    /// Bytes of the buffer that are filled.
    len: u64,
    /// Bytes that may still be read: a list that jumps about in hostile memory must not keep us for ever.
    budget: u64,
}

impl<'a, M: Memory> Window<'a, M> {
    #[must_use]
    pub fn new(memory: &'a M, space: &'a Space) -> Self {
        Self { memory, space, buffer: vec![0; WINDOW / 8], start: 0, len: 0, budget: 0 }
    }

    /// Forgets what was read and allows `bytes` more. Some are always allowed.
    pub fn allow(&mut self, bytes: u64) {
        self.len = 0;
        self.budget = bytes.saturating_mul(4).saturating_add(64 * WINDOW as u64);
    }

    /// The aligned word at an address; `None`: not resident, not readable, or the budget is spent.
    pub fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        let at = address.wrapping_sub(self.start);
        if at < self.len {
            return self.buffer.get(at as usize / 8).copied();
        }
        self.fill(address)?;
        self.buffer.first().copied()
    }

    fn fill(&mut self, address: u64) -> Option<()> {
        self.len = 0;
        let len = (self.space.own_until(address)? - address).min(WINDOW as u64) & !7;
        self.budget = self.budget.checked_sub(len)?;
        let words = self.buffer.get_mut(..len as usize / 8)?;
        self.memory.read(address, words.as_mut_bytes()).ok()?;
        (self.start, self.len) = (address, len);
        Some(())
    }
}
