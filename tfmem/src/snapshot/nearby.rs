//! Memory of which the page that was read last is kept: small reads near each other cost one call.

use std::cell::RefCell;

use crate::{
    observe::pagemap::PAGE,
    target::memory::{Memory, Unread},
};

pub struct Nearby<'a, M> {
    memory: &'a M,
    last: RefCell<Page>,
}

struct Page {
    start: u64,
    bytes: Vec<u8>,
}

/// Where no page begins.
const NONE: u64 = 1;

impl<'a, M: Memory> Nearby<'a, M> {
    #[must_use]
    pub fn new(memory: &'a M) -> Self {
        Self { memory, last: RefCell::new(Page { start: NONE, bytes: vec![0; PAGE as usize] }) }
    }
}

impl<M: Memory> Memory for Nearby<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
        let start = address / PAGE * PAGE;
        let at = (address - start) as usize;
        if at + buffer.len() > PAGE as usize {
            return self.memory.read(address, buffer);
        }
        let mut last = self.last.borrow_mut();
        if last.start != start {
            last.start = NONE;
            self.memory.read(start, &mut last.bytes)?;
            last.start = start;
        }
        buffer.copy_from_slice(last.bytes.get(at..at + buffer.len()).ok_or(Unread)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Counting(Cell<u32>);

    impl Memory for Counting {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
            self.0.set(self.0.get() + 1);
            if address >= 0x9000 {
                return Err(Unread);
            }
            for (byte, at) in buffer.iter_mut().zip(address..) {
                *byte = at as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn a_page_is_read_once() {
        let memory = Counting(Cell::new(0));
        let nearby = Nearby::new(&memory);
        for at in (0x5000..0x6000).step_by(4) {
            assert_eq!(nearby.byte(at), Ok(at as u8));
        }
        assert_eq!(memory.0.get(), 1);
        // Over the border of two pages, and of what cannot be read.
        assert_eq!(nearby.bytes(0x5ffe, 4).unwrap(), [0xfe, 0xff, 0, 1]);
        assert_eq!(nearby.byte(0x9000), Err(Unread));
        assert_eq!(nearby.byte(0x5004), Ok(4));
        assert_eq!(memory.0.get(), 4);
    }
}
