//! The address space: what is mapped, and which pages of it are the process's own and resident.

use std::{io, ops::Range};

use crate::{
    event::MappingKind,
    observe::pagemap::{PAGE, Pagemap, Resident},
    target::maps::{self, Line},
};

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    pub range: Range<u64>,
    pub kind: MappingKind,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub offset: u64,
    pub name: String,
    pub resident: Resident,
}

impl Area {
    /// Memory that nobody else sees and no file lies under.
    #[must_use]
    pub const fn is_anonymous(&self) -> bool {
        matches!(self.kind, MappingKind::Anonymous | MappingKind::Heap) && self.readable && self.writable
    }

    /// A private mapping of a file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, MappingKind::File)
    }
}

/// What a process has mapped. Only pages in `own` are ever read: reading any other would make it resident.
#[derive(Clone, Debug, Default)]
pub struct Space {
    pub areas: Vec<Area>,
    /// Resident ranges of the process's own (start, bytes), sorted, none touching another.
    own: Vec<(u64, u64)>,
}

/// A range larger than this and not readable is a reservation: nothing in it can be resident.
const RESERVATION: u64 = 64 << 20;

impl Space {
    /// # Errors
    /// When the process is gone or may not be read.
    pub fn read(pid: u32) -> io::Result<Self> {
        let mut pagemap = Pagemap::open(pid)?;
        let mut space = Self::default();
        for line in maps::read(pid)? {
            let nothing = line.kind() == MappingKind::Kernel || (!line.readable && line.len() > RESERVATION);
            let resident =
                if nothing { Resident::default() } else { pagemap.read(line.start, line.end, &mut space.own)? };
            space.areas.push(area(line, resident));
        }
        Ok(space)
    }

    /// A space with these areas, in which everything is resident.
    #[must_use]
    pub fn of(areas: Vec<Area>) -> Self {
        let mut own: Vec<(u64, u64)> = Vec::new();
        for range in areas.iter().map(|area| &area.range) {
            match own.last_mut() {
                Some((last, len)) if *last + *len == range.start => *len += range.end - range.start,
                _ => own.push((range.start, range.end - range.start)),
            }
        }
        Self { areas, own }
    }

    /// Mappings and the process's own resident ranges.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Area>, Vec<(u64, u64)>) {
        (self.areas, self.own)
    }

    /// The mapping that holds an address.
    #[must_use]
    pub fn area(&self, address: u64) -> Option<&Area> {
        let next = self.areas.partition_point(|area| area.range.end <= address);
        self.areas.get(next).filter(|area| area.range.start <= address)
    }

    /// Where the anonymous mappings end that follow one without a gap. A piece of memory may lie in several: an advice
    /// about a part of it splits it.
    #[must_use]
    pub fn run_end(&self, area: &Area) -> u64 {
        let next = self.areas.partition_point(|other| other.range.start < area.range.end);
        let mut end = area.range.end;
        for other in self.areas.iter().skip(next) {
            if other.range.start != end || !other.is_anonymous() {
                break;
            }
            end = other.range.end;
        }
        end
    }

    /// Resident ranges of the process's own inside a range.
    pub fn own(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let first = self.own.partition_point(|&(start, len)| start + len <= range.start);
        let rest = self.own.get(first..).unwrap_or_default();
        rest.iter()
            .take_while({
                let end = range.end;
                move |&&(start, _)| start < end
            })
            .map(move |&(start, len)| start.max(range.start)..(start + len).min(range.end))
    }

    /// Bytes of a range that are resident and the process's own.
    #[must_use]
    pub fn own_bytes(&self, range: Range<u64>) -> u64 {
        self.own(range).map(|part| part.end - part.start).sum()
    }

    /// All bytes that are resident and the process's own.
    #[must_use]
    pub fn all_own_bytes(&self) -> u64 {
        self.own.iter().map(|&(_, len)| len).sum()
    }

    /// Resident bytes of the whole pages inside a range.
    #[must_use]
    pub fn own_whole_pages(&self, range: Range<u64>) -> u64 {
        let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
        if start < end { self.own_bytes(start..end) } else { 0 }
    }

    /// Where the resident range that holds an address ends.
    #[must_use]
    pub fn own_until(&self, address: u64) -> Option<u64> {
        let next = self.own.partition_point(|&(start, len)| start + len <= address);
        self.own.get(next).filter(|&&(start, _)| start <= address).map(|&(start, len)| start + len)
    }
}

fn area(line: Line, resident: Resident) -> Area {
    Area {
        range: line.start..line.end,
        kind: line.kind(),
        readable: line.readable,
        writable: line.writable,
        executable: line.executable,
        offset: line.offset,
        name: line.name,
        resident,
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// An area for a test.
    pub fn area(range: Range<u64>, kind: MappingKind, name: &str) -> Area {
        Area {
            range,
            kind,
            readable: true,
            writable: true,
            executable: false,
            offset: 0,
            name: name.to_owned(),
            resident: Resident::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_what_is_asked_for() {
        let areas = [(0x1000..0x3000, "a"), (0x3000..0x4000, "b"), (0x8000..0x9000, "c")];
        let areas = areas.map(|(range, name)| testing::area(range, MappingKind::Anonymous, name));
        let space = Space::of(areas.to_vec());
        assert_eq!(space.own(0x2800..0x8800).collect::<Vec<_>>(), [0x2800..0x4000, 0x8000..0x8800]);
        assert_eq!(space.own_bytes(0..u64::MAX), 0x4000);
        assert_eq!(space.own_whole_pages(0x1800..0x3800), 0x1000);
        assert_eq!((space.own_until(0x3fff), space.own_until(0x4000)), (Some(0x4000), None));
        assert_eq!(space.area(0x3000).map(|area| area.name.as_str()), Some("b"));
        assert_eq!(space.area(0x4000), None);
        assert_eq!(space.areas.iter().map(|area| space.run_end(area)).collect::<Vec<_>>(), [0x4000, 0x4000, 0x9000]);
    }

    #[test]
    fn our_own_space() {
        let space = Space::read(std::process::id()).unwrap();
        let local = 1_u64;
        let address = std::ptr::from_ref(&local) as u64;
        assert!(space.area(address).is_some_and(|area| area.kind == MappingKind::Stack || area.is_anonymous()));
        assert!(space.own_until(address).is_some());
        assert_eq!(space.all_own_bytes(), space.own_bytes(0..u64::MAX));
    }
}
