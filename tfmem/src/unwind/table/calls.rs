//! Can a return address lie in a range of code? Decided from its bytes alone, without decoding: an answer of "no" holds
//! however the bytes are read.

use std::collections::VecDeque;

use crate::attach::elf::Elf;

/// Longer ranges are not looked at: a byte of theirs that looks like a call is likely, and they are few.
pub const LONGEST: u64 = 256;

const CALL_RELATIVE: u8 = 0xe8;
const CALL_RELATIVE_SIZE: usize = 5;
const GROUP_5: u8 = 0xff;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Rules change between instructions, so a call that returns into a range lies in it whole. Calls (`e8`, `ff /2`, `ff /3`)
/// and system calls are what the unwinder may find a thread in.
#[must_use]
pub fn none_in(code: &[u8]) -> bool {
    let is_call = |at: usize| {
        let Some(&[first, second]) = code.get(at..).and_then(|rest| rest.first_chunk::<2>()) else { return false };
        match first {
            CALL_RELATIVE => code.len() - at >= CALL_RELATIVE_SIZE,
            GROUP_5 => matches!(second >> 3 & 7, 2 | 3),
            _ => [first, second] == SYSCALL,
        }
    };
    !(0..code.len()).any(is_call)
}

/// Code of a file by address, read ahead: functions are asked for nearly in order.
pub struct Code<'a> {
    elf: &'a Elf,
    windows: VecDeque<Window>,
}

struct Window {
    start: u64,
    bytes: Vec<u8>,
}

const AHEAD: u64 = 1 << 18;
/// Cold parts of functions lie in a region of their own.
const WINDOWS: usize = 4;

impl<'a> Code<'a> {
    pub const fn new(elf: &'a Elf) -> Self {
        Self { elf, windows: VecDeque::new() }
    }

    /// Is it proven that no return address lies in this range?
    pub fn is_call_free(&mut self, start: u64, end: u64) -> bool {
        let len = end.saturating_sub(start);
        // One byte is no call, whatever it is.
        len <= 1 || (len <= LONGEST && self.bytes(start, len).is_some_and(none_in))
    }

    fn bytes(&mut self, start: u64, len: u64) -> Option<&[u8]> {
        let holds = |window: &Window| start >= window.start && start - window.start + len <= window.bytes.len() as u64;
        let place = match self.windows.iter().position(holds) {
            Some(place) => place,
            None => {
                let bytes = self.elf.at(start, AHEAD).ok()?;
                self.windows.push_front(Window { start, bytes });
                self.windows.truncate(WINDOWS);
                0
            }
        };
        let window = self.windows.get(place)?;
        let at = usize::try_from(start - window.start).ok()?;
        window.bytes.get(at..at.checked_add(usize::try_from(len).ok()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_wherever_they_may_begin() {
        // push %rbp; mov %rsp,%rbp; push %r15
        assert!(none_in(&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57]));
        // leave; ret; jmp *%rax; jmp rel32
        assert!(none_in(&[0xc9, 0xc3, 0xff, 0xe0, 0xe9, 1, 2, 3, 4]));
        assert!(!none_in(&[0xe8, 0, 0, 0, 0]));
        assert!(none_in(&[0xe8, 0, 0, 0]), "cut short, it is no call of this range");
        assert!(!none_in(&[0x90, 0xff, 0xd0]), "call *%rax");
        assert!(!none_in(&[0x41, 0xff, 0x54, 0x24, 0x10]), "call *0x10(%r12)");
        assert!(!none_in(&[0xff, 0x15, 0, 0, 0, 0]), "call *(%rip)");
        assert!(!none_in(&[0x0f, 0x05]));
        assert!(none_in(&[]));
    }
}
