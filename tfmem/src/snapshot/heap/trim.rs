//! What `malloc_trim(0)` would give back, told from outside.
//!
//! It first merges what lies in fastbins with its free neighbours; what then touches the top becomes part of it. It
//! gives back the whole pages inside free chunks, and the end of the main arena's top; never any other arena's top.

use std::ops::Range;

use super::segment::Segment;
use crate::{observe::pagemap::PAGE, snapshot::space::Space};

/// `sizeof(struct malloc_chunk)`: what stays of a free chunk whose pages are given back.
const HEAD: u64 = 48;
/// `MINSIZE` and one byte: what stays of the top.
const TOP_HEAD: u64 = 33;

/// Free memory of a segment that is resident, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// In whole pages, or beside what is in use.
    pub resident: u64,
    /// `malloc_trim` gives it back.
    pub trimmable: u64,
    /// In whole pages of a top that `malloc_trim` never touches.
    pub in_top: u64,
}

/// `main`: it is the main arena's.
#[must_use]
pub fn free(space: &Space, segment: &Segment, main: bool) -> Free {
    let mut free = Free::default();
    let mut run: Option<Range<u64>> = None;
    for chunk in segment.chunks().filter(|chunk| !chunk.live) {
        match &mut run {
            Some(run) if run.end == chunk.start => run.end = chunk.end(),
            _ => {
                add(space, &mut free, run.take(), segment.top, main);
                run = Some(chunk.start..chunk.end());
            }
        }
    }
    add(space, &mut free, run, segment.top, main);
    free
}

fn add(space: &Space, free: &mut Free, run: Option<Range<u64>>, top: Option<u64>, main: bool) {
    let Some(run) = run else { return };
    free.resident += space.own_bytes(run.clone());
    let is_top = top.is_some_and(|top| run.contains(&top));
    match (is_top, main) {
        (false, _) => free.trimmable += space.own_whole_pages(run.start + HEAD..run.end),
        (true, true) => {
            let given = (run.end - run.start).saturating_sub(TOP_HEAD) / PAGE * PAGE;
            free.trimmable += space.own_bytes(run.end - given..run.end);
        }
        (true, false) => free.in_top += space.own_whole_pages(run.start + HEAD..run.end),
    }
}

impl std::ops::AddAssign for Free {
    fn add_assign(&mut self, other: Self) {
        self.resident += other.resident;
        self.trimmable += other.trimmable;
        self.in_top += other.in_top;
    }
}
