//! From chunk to chunk through one segment of an arena, and back on the path after what makes no sense.

use super::segment::{GRAIN, Segment};
use crate::{snapshot::window::Window, target::memory::Memory};

const PREVIOUS_IN_USE: u64 = 1;
const FLAGS: u64 = 7;
const SMALLEST: u64 = 32;
/// So many chunks in a row make sense by accident nowhere.
const CONVINCING: usize = 12;

/// What a segment holds, in bytes. All parts together are the segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    pub in_use: u64,
    pub free: u64,
    /// The chunk at the end, which has not been handed out.
    pub top: u64,
    /// Ends of pieces that could not grow.
    pub fenceposts: u64,
    /// Behind a fencepost: what another caller of `sbrk` took.
    pub foreign: u64,
    /// Changed while it was read, or damaged.
    pub lost: u64,
}

impl Walked {
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.in_use + self.free + self.top + self.fenceposts + self.foreign + self.lost
    }
}

/// Where a walk begins and ends.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub from: u64,
    /// The end of the memory that belongs to the segment.
    pub end: u64,
    /// The arena's `top`; it may have moved since it was read.
    pub top: u64,
}

enum Step {
    Chunk { size: u64, live: bool },
    Top { size: u64 },
    Fencepost { size: u64 },
    Nonsense,
}

/// Walks a segment and notes its chunks in it.
pub fn walk<M: Memory>(window: &mut Window<'_, M>, segment: &mut Segment, way: Way) -> Walked {
    let mut walked = Walked::default();
    let mut at = way.from;
    let mut fenced = false;
    while at < way.end {
        match step(window, at, way) {
            Step::Chunk { size, live } => {
                segment.add(at, live);
                *(if live { &mut walked.in_use } else { &mut walked.free }) += size;
                at += size;
                fenced = false;
            }
            Step::Top { size } => {
                segment.add(at, false);
                segment.top = Some(at);
                walked.top += size;
                at += size;
                break;
            }
            Step::Fencepost { size } => {
                segment.hole(at);
                walked.fenceposts += size;
                at += size;
                fenced = true;
            }
            Step::Nonsense => {
                let next = if segment.hole(at) { resume(window, at, way) } else { way.end };
                *(if fenced { &mut walked.foreign } else { &mut walked.lost }) += next - at;
                at = next;
                fenced = false;
            }
        }
    }
    segment.hole(at);
    walked
}

fn step<M: Memory>(window: &mut Window<'_, M>, at: u64, way: Way) -> Step {
    let Some(header) = window.word(at + 8) else { return Step::Nonsense };
    let size = header & !FLAGS;
    let room = way.end - at;
    // The chunk before a fencepost may have been freed: nothing but its size tells it.
    if size == GRAIN || (header == PREVIOUS_IN_USE && room <= SMALLEST) {
        return Step::Fencepost { size: GRAIN.min(room) };
    }
    if size < SMALLEST || !size.is_multiple_of(GRAIN) || size > room {
        return Step::Nonsense;
    }
    if at == way.top || size == room {
        return Step::Top { size };
    }
    let Some(next) = window.word(at + size + 8) else { return Step::Nonsense };
    let live = next & PREVIOUS_IN_USE != 0;
    // A free chunk repeats its size at its end.
    if !live && window.word(at + size) != Some(size) {
        return Step::Nonsense;
    }
    Step::Chunk { size, live }
}

/// The next place from which chunks make sense again.
fn resume<M: Memory>(window: &mut Window<'_, M>, from: u64, way: Way) -> u64 {
    let mut at = from + GRAIN;
    while at < way.end {
        if at == way.top || convincing(window, at, way) {
            return at;
        }
        at += GRAIN;
    }
    way.end
}

fn convincing<M: Memory>(window: &mut Window<'_, M>, from: u64, way: Way) -> bool {
    let mut at = from;
    for _ in 0..CONVINCING {
        match step(window, at, way) {
            Step::Chunk { size, .. } => at += size,
            Step::Top { .. } => return at > from || at == way.top,
            Step::Fencepost { .. } => return at > from,
            Step::Nonsense => return false,
        }
    }
    true
}

impl std::ops::AddAssign for Walked {
    fn add_assign(&mut self, other: Self) {
        self.in_use += other.in_use;
        self.free += other.free;
        self.top += other.top;
        self.fenceposts += other.fenceposts;
        self.foreign += other.foreign;
        self.lost += other.lost;
    }
}
