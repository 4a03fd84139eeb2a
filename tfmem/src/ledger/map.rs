//! The address space of a process: which ranges are mapped, what they are, since when.

use std::collections::BTreeMap;

use crate::event::{Addr, MappingKind};

pub(super) const PAGE: u64 = 4096;

/// One range of the address space that has one birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    pub start: Addr,
    pub len: u64,
    pub kind: MappingKind,
    /// When it was made; `None`: it was there before the trace, or its making was not seen.
    pub born: Option<u64>,
    /// Thread that made it, 0 when not seen.
    pub tid: u32,
    /// When it came to this place; 0: not seen.
    pub since: u64,
}

impl MappedRange {
    #[must_use]
    pub const fn end(&self) -> Addr {
        self.start.saturating_add(self.len)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub len: u64,
    pub kind: MappingKind,
    pub born: Option<u64>,
    pub tid: u32,
    pub since: u64,
}

impl Piece {
    pub(super) const fn of(range: &MappedRange) -> Self {
        Self { len: range.len, kind: range.kind, born: range.born, tid: range.tid, since: range.since }
    }

    /// Something that was found there.
    pub(super) const fn found(kind: MappingKind) -> Self {
        Self { len: 0, kind, born: None, tid: 0, since: 0 }
    }
}

/// Disjoint ranges by start. Neighbours are not merged: each keeps its own birth.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    pub(super) pieces: BTreeMap<Addr, Piece>,
    bytes: u64,
    pub(super) heap: Option<Break>,
    /// Whether a complete observation was compared since the process, or its program, began.
    pub(super) compared: bool,
}

/// The program break: where the heap made by `brk` starts and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    pub start: Addr,
    pub end: Addr,
}

const fn page_up(addr: Addr) -> Addr {
    addr.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// The pages a system call works on: the kernel rounds the length up.
const fn pages(start: Addr, len: u64) -> (Addr, Addr) {
    (start & !(PAGE - 1), page_up(start.saturating_add(len)))
}

impl MemoryMap {
    /// Ranges in order of address.
    pub fn iter(&self) -> impl Iterator<Item = MappedRange> + '_ {
        self.pieces.iter().map(|(&start, piece)| range(start, piece))
    }

    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The range that holds `addr`.
    #[must_use]
    pub fn find(&self, addr: Addr) -> Option<MappedRange> {
        let (&start, piece) = self.pieces.range(..=addr).next_back()?;
        (start.saturating_add(piece.len) > addr).then(|| range(start, piece))
    }

    /// Ranges that share a byte with `start..end`.
    pub(super) fn overlapping(&self, start: Addr, end: Addr) -> impl Iterator<Item = MappedRange> + '_ {
        let from = self.find(start).map_or(start, |r| r.start);
        self.pieces.range(from..end.max(from)).map(|(&start, piece)| range(start, piece))
    }

    pub(super) fn map(&mut self, start: Addr, len: u64, kind: MappingKind, at: u64, tid: u32) {
        let (start, end) = pages(start, len);
        self.put(start, end, Piece { kind, born: Some(at), tid, since: at, len: 0 });
    }

    pub(super) fn unmap(&mut self, start: Addr, len: u64) {
        let (start, end) = pages(start, len);
        self.carve(start, end, |_| {});
    }

    /// Moves, grows or shrinks, from the call's beginning to its return. What moves keeps its birth, and what grows takes
    /// the birth of what it grew from.
    pub(super) fn remap(&mut self, old: (Addr, u64), new: (Addr, u64), keep_old: bool, time: (u64, u64), tid: u32) {
        let (old_start, old_end) = pages(old.0, old.1);
        let (start, end) = pages(new.0, new.1);
        let (began, at) = time;
        let unknown = Piece { len: 0, kind: MappingKind::Anonymous, born: None, tid: 0, since: at };
        if old.1 == 0 {
            // An old length of 0 asks for a second view of a shared mapping; the first one stays.
            let kind = self.find(old_start).map_or(MappingKind::Shared, |r| r.kind);
            self.put(start, end, Piece { kind, born: Some(at), tid, ..unknown });
            return;
        }
        let mut moved = Vec::new();
        self.carve(old_start, old_end, |piece| moved.push(piece));
        // Another thread may have got the old place, or a part of it, before this call returned.
        let (stays, moved): (Vec<MappedRange>, _) =
            moved.into_iter().partition(|piece| keep_old || piece.since > began);
        for piece in &stays {
            self.put(piece.start, piece.end(), Piece::of(piece));
        }
        let moved = if keep_old { stays } else { moved };
        // The target loses what it held; a part whose source the ledger does not know has no birth.
        let kind = moved.last().map_or(MappingKind::Anonymous, |p| p.kind);
        self.put(start, end, Piece { kind, ..unknown });
        for piece in &moved {
            let from = start.saturating_add(piece.start - old_start);
            self.put(from, from.saturating_add(piece.len).min(end), Piece { since: at, ..Piece::of(piece) });
        }
        if let Some(last) = moved.last().filter(|p| p.end() == old_end) {
            self.put(start.saturating_add(old_end - old_start), end, Piece { since: at, ..Piece::of(last) });
        }
    }

    pub(super) fn set_break(&mut self, end: Addr, at: u64, tid: u32) {
        let Some(heap) = self.heap else {
            // The first one seen says where the break is, not what it was before.
            self.heap = Some(Break { start: end, end });
            return;
        };
        let (old, new) = (page_up(heap.end), page_up(end));
        if new > old {
            self.put(old, new, Piece { kind: MappingKind::Heap, born: Some(at), tid, since: at, len: 0 });
        } else {
            self.carve(new.max(page_up(heap.start)), old, |_| {});
        }
        self.heap = Some(Break { start: heap.start.min(end), end });
    }

    /// Makes this range what `piece` says, but for its length.
    pub(super) fn put(&mut self, start: Addr, end: Addr, piece: Piece) {
        if start >= end {
            return;
        }
        self.carve(start, end, |_| {});
        self.insert(start, Piece { len: end - start, ..piece });
    }

    /// Takes a range out, splitting what reaches over its ends; `taken` is told each piece in order of address.
    pub(super) fn carve(&mut self, start: Addr, end: Addr, mut taken: impl FnMut(MappedRange)) {
        if start >= end {
            return;
        }
        if let Some((&first, &piece)) = self.pieces.range(..start).next_back()
            && first + piece.len > start
        {
            self.remove(first);
            self.insert(first, Piece { len: start - first, ..piece });
            self.insert(start, Piece { len: first + piece.len - start, ..piece });
        }
        while let Some((&first, &piece)) = self.pieces.range(start..end).next() {
            self.remove(first);
            let last = first + piece.len;
            if last > end {
                self.insert(end, Piece { len: last - end, ..piece });
            }
            taken(range(first, &Piece { len: last.min(end) - first, ..piece }));
        }
    }

    fn insert(&mut self, start: Addr, piece: Piece) {
        self.bytes = self.bytes.wrapping_add(piece.len);
        if let Some(old) = self.pieces.insert(start, piece) {
            self.bytes = self.bytes.wrapping_sub(old.len);
        }
    }

    fn remove(&mut self, start: Addr) {
        if let Some(old) = self.pieces.remove(&start) {
            self.bytes = self.bytes.wrapping_sub(old.len);
        }
    }
}

const fn range(start: Addr, piece: &Piece) -> MappedRange {
    MappedRange { start, len: piece.len, kind: piece.kind, born: piece.born, tid: piece.tid, since: piece.since }
}

/// What a `Map` event made, by the same classes as an observation uses.
pub(super) const fn kind_of(flags: u32, file: bool) -> MappingKind {
    const SHARED: u32 = 1;
    if file {
        MappingKind::File
    } else if flags & SHARED != 0 {
        MappingKind::Shared
    } else {
        MappingKind::Anonymous
    }
}
