//! Where glibc keeps its arenas, found by what lies there: no symbol, no debugging information.
//!
//! `struct malloc_state` since glibc 2.27: `fastbinsY` +16, `top` +96, 127 bins of two pointers +112, `binmap` +2144,
//! `next` +2160, `next_free` +2168, `attached_threads` +2176, `system_mem` +2184, `max_system_mem` +2192.

use zerocopy::IntoBytes as _;

use crate::{
    snapshot::space::{Area, Space},
    target::memory::Memory,
};

pub const FASTBINS: u64 = 16;
pub const TOP: u64 = 96;
pub const BINS: u64 = 112;
pub const NEXT: u64 = 2160;
pub const SYSTEM_MEM: u64 = 2184;
pub const STATE_BYTES: u64 = 2200;
const BIN_COUNT: u64 = 127;

/// The data of a C library, or of a program that has one inside, is never larger.
const MOST_DATA: u64 = 64 << 20;

/// What the C library's data say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of `main_arena`.
    pub main: u64,
    pub parameters: Option<Parameters>,
}

/// `struct malloc_par`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Chunks that are mappings of their own, and their bytes.
    pub mapped_chunks: u64,
    pub mapped_bytes: u64,
    /// Where the main arena began.
    pub sbrk_base: u64,
}

/// Looks for the arenas of glibc's `malloc`. `None`: the program uses none, or one that is not known.
#[must_use]
pub fn find(memory: &impl Memory, space: &Space) -> Option<Found> {
    let data = |area: &&Area| area.writable && area.is_file();
    let library = |area: &&Area| {
        let name = area.name.rsplit('/').next().unwrap_or_default();
        name.starts_with("libc.so") || name.starts_with("libc-2.")
    };
    let named: Vec<&Area> = space.areas.iter().filter(data).filter(library).collect();
    // A program that has its C library inside maps no such file.
    let all = || space.areas.iter().filter(data).collect();
    let places = if named.is_empty() { all() } else { named };
    places.into_iter().find_map(|area| in_data(memory, space, area))
}

fn in_data(memory: &impl Memory, space: &Space, area: &Area) -> Option<Found> {
    // What is zero at first lies behind the file's part, without a name.
    let behind = space.area(area.range.end).filter(|next| next.is_anonymous() && next.name.is_empty());
    let end = behind.map_or(area.range.end, |next| next.range.end.min(area.range.end + MOST_DATA));
    let end = end.min(area.range.start + MOST_DATA);
    let mut found: Option<u64> = None;
    let mut parameters = None;
    for part in space.own(area.range.start..end) {
        let mut words = vec![0_u64; ((part.end - part.start) / 8) as usize];
        if memory.read(part.start, words.as_mut_bytes()).is_err() {
            continue;
        }
        for at in 0..words.len() {
            let address = part.start + at as u64 * 8;
            let rest = words.get(at..).unwrap_or_default();
            if found.is_none() && is_state(rest, address) {
                found = Some(address);
            }
            parameters = parameters.or_else(|| parameters_at(rest, space));
        }
    }
    found.map(|main| Found { main, parameters })
}

/// Do these words, which lie at `address`, have the structure of an arena? A busy one has no empty bin to speak of,
/// so structure counts, not emptiness.
#[must_use]
pub fn is_state(words: &[u64], address: u64) -> bool {
    let word = |offset: u64| words.get(offset as usize / 8).copied().unwrap_or(0);
    let (system, most) = (word(SYSTEM_MEM), word(SYSTEM_MEM + 8));
    if word(NEXT) == 0 || system % 4096 != 0 || system > most || !is_pointer(word(TOP)) {
        return false;
    }
    let mut empty = 0;
    for bin in 0..BIN_COUNT {
        let own = address + BINS + bin * 16 - 16;
        let (first, last) = (word(BINS + bin * 16), word(BINS + bin * 16 + 8));
        match (first == own, last == own) {
            (true, true) => empty += 1,
            (false, false) if is_pointer(first) && is_pointer(last) => {}
            _ => return false,
        }
    }
    empty > 0
}

const fn is_pointer(word: u64) -> bool {
    word != 0 && word.is_multiple_of(16)
}

/// `n_mmaps`, `n_mmaps_max` (65,536 unless tuned), `max_n_mmaps`, `no_dyn_threshold` are four ints; `mmapped_mem`,
/// `max_mmapped_mem`, `sbrk_base` follow at the next multiple of eight.
fn parameters_at(words: &[u64], space: &Space) -> Option<Parameters> {
    const MOST_MAPPED: u64 = 65_536;
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let half = |at: usize| (word(at / 2) >> (at % 2 * 32)) & 0xffff_ffff;
    (0..2).find_map(|first| {
        let (chunks, limit, most, fixed) = (half(first), half(first + 1), half(first + 2), half(first + 3));
        if limit != MOST_MAPPED || chunks > most || fixed > 1 {
            return None;
        }
        let next = (first + 4).div_ceil(2);
        let (bytes, most_bytes, base) = (word(next), word(next + 1), word(next + 2));
        let plausible = bytes % 4096 == 0 && bytes <= most_bytes && (bytes == 0) == (chunks == 0);
        let in_heap = space.area(base).is_some_and(|area| area.is_anonymous());
        (plausible && in_heap).then_some(Parameters { mapped_chunks: chunks, mapped_bytes: bytes, sbrk_base: base })
    })
}
