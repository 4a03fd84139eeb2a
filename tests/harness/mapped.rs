//! Sets of pages: the simplest model of an address space there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use tfmem::event::{Body, Event, MappingKind};

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
    /// Since when
    pages: BTreeMap<u64, u64>,
    end_of_break: Option<u64>,
    /// It was shown what was there when its program began.
    pub begun: bool,
}

impl Naive {
    #[must_use]
    pub fn mapped(&self) -> Mapped {
        Mapped(self.pages.keys().copied().collect())
    }

    fn map(&mut self, start: u64, len: u64, at: u64) {
        self.pages.extend(pages(start, len).map(|page| (page, at)));
    }

    fn unmap(&mut self, start: u64, len: u64) {
        self.unmap_older(start, len, u64::MAX);
    }

    fn unmap_older(&mut self, start: u64, len: u64, than: u64) {
        for page in pages(start, len) {
            if self.pages.get(&page).is_some_and(|&since| since <= than) {
                self.pages.remove(&page);
            }
        }
    }

    pub fn apply(&mut self, event: &Event) {
        match &event.body {
            Body::Exec => *self = Self::default(),
            Body::Map { start, len, .. } => self.map(*start, *len, event.at),
            Body::Unmap { start, len } => self.unmap(*start, *len),
            Body::Remap { old_start, old_len, start, len, keep_old, took } => {
                if !keep_old && *old_len > 0 {
                    self.unmap_older(*old_start, *old_len, event.at - u64::from(*took));
                }
                self.map(*start, *len, event.at);
            }
            Body::Brk { end } => self.set_break(*end, event.at),
            Body::Snapshot(snapshot) => {
                self.begun = true;
                self.pages.clear();
                for mapping in &snapshot.mappings {
                    match mapping.kind {
                        MappingKind::Stack | MappingKind::Kernel => {}
                        _ => self.map(mapping.start, mapping.len, 0),
                    }
                }
            }
            _ => {}
        }
    }

    fn set_break(&mut self, end: u64, at: u64) {
        if let Some(old) = self.end_of_break.replace(end) {
            let (old, new) = (old.next_multiple_of(PAGE), end.next_multiple_of(PAGE));
            if new > old {
                self.map(old, new - old, at);
            } else {
                self.unmap(new, old - new);
            }
        }
    }
}
