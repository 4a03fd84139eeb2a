//! Text in the memory of a process, as C and C++ keep it.

use crate::target::memory::Memory;

/// A name is never longer.
const LONGEST: u64 = 512;

/// Printable text of a given length.
#[must_use]
pub fn counted(memory: &impl Memory, address: u64, len: u64) -> Option<String> {
    if len == 0 || len > LONGEST || address == 0 {
        return None;
    }
    let bytes = memory.bytes(address, len as usize).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.chars().all(|c| !c.is_control()).then_some(text)
}

/// A `std::string` whose three or four words begin at `address`.
#[must_use]
pub fn std_string(memory: &impl Memory, address: u64) -> Option<String> {
    let (data, len, room) =
        (memory.word(address).ok()?, memory.word(address + 8).ok()?, memory.word(address + 16).ok()?);
    let inside = data == address + 16;
    // Up to 15 characters lie in the string itself, where else its room is said.
    if (inside && len > 15) || (!inside && (len > room || room < 16)) {
        return None;
    }
    counted(memory, data, len)
}

/// A pair of length and pointer, in either order.
#[must_use]
pub fn view(memory: &impl Memory, address: u64) -> Option<String> {
    let (first, second) = (memory.word(address).ok()?, memory.word(address + 8).ok()?);
    if first <= LONGEST { counted(memory, second, first) } else { counted(memory, first, second) }
}

/// Text that ends with a zero.
pub fn until_zero(read: impl Fn(u64, &mut [u8]) -> bool, address: u64) -> Option<Vec<u8>> {
    const STEP: u64 = 64;
    let mut text = Vec::new();
    while (text.len() as u64) < LONGEST * 4 {
        // Never across the border of two pages more than needed.
        let at = address.checked_add(text.len() as u64)?;
        let mut step = [0; STEP as usize];
        let step = step.get_mut(..(STEP - at % STEP) as usize)?;
        if !read(at, step) {
            return None;
        }
        match step.iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(step.get(..end)?);
                return Some(text);
            }
            None => text.extend_from_slice(step),
        }
    }
    None
}
