//! Sets of pages: the simplest model of an address space there is.

use std::{collections::BTreeSet, fmt};

use tfmem::event::{Body, MappingKind};

const PAGE: u64 = 4096;

/// Which pages are mapped, by number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Mapped(BTreeSet<u64>);

impl Mapped {
    /// Of ranges: start, bytes.
    pub fn of(ranges: impl Iterator<Item = (u64, u64)>) -> Self {
        Self(ranges.flat_map(|(start, len)| pages(start, len)).collect())
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64 * PAGE
    }

    /// Bytes that one of the two has and the other has not.
    #[must_use]
    pub fn difference(&self, other: &Self) -> u64 {
        self.0.symmetric_difference(&other.0).count() as u64 * PAGE
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages", self.0.len())
    }
}

fn pages(start: u64, len: u64) -> impl Iterator<Item = u64> {
    start / PAGE..start.saturating_add(len).div_ceil(PAGE)
}

/// One process, page by page, by the rules of the system calls' manual pages alone.
#[derive(Clone, Default)]
pub struct Naive {
    pages: BTreeSet<u64>,
    end_of_break: Option<u64>,
    /// It was shown what was there when its program began.
    pub begun: bool,
}

impl Naive {
    #[must_use]
    pub fn mapped(&self) -> Mapped {
        Mapped(self.pages.clone())
    }

    fn map(&mut self, start: u64, len: u64) {
        self.pages.extend(pages(start, len));
    }

    fn unmap(&mut self, start: u64, len: u64) {
        for page in pages(start, len) {
            self.pages.remove(&page);
        }
    }

    pub fn apply(&mut self, body: &Body) {
        match body {
            Body::Exec => *self = Self::default(),
            Body::Map { start, len, .. } => self.map(*start, *len),
            Body::Unmap { start, len } => self.unmap(*start, *len),
            Body::Remap { old_start, old_len, start, len, keep_old } => {
                if !keep_old && *old_len > 0 {
                    self.unmap(*old_start, *old_len);
                }
                self.map(*start, *len);
            }
            Body::Brk { end } => self.set_break(*end),
            Body::Snapshot(snapshot) => {
                self.begun = true;
                self.pages.clear();
                for mapping in &snapshot.mappings {
                    match mapping.kind {
                        MappingKind::Stack | MappingKind::Kernel => {}
                        _ => self.map(mapping.start, mapping.len),
                    }
                }
            }
            _ => {}
        }
    }

    fn set_break(&mut self, end: u64) {
        if let Some(old) = self.end_of_break.replace(end) {
            let (old, new) = (old.next_multiple_of(PAGE), end.next_multiple_of(PAGE));
            if new > old {
                self.map(old, new - old);
            } else {
                self.unmap(new, old - new);
            }
        }
    }
}
