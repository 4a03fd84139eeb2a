//! Which pages of a range are resident, from `/proc/PID/pagemap`.
//!
//! Layout (Documentation/admin-guide/mm/pagemap.rst): one little-endian u64 a page; bit 63: present; bit 61: the page
//! is of a file or shared anonymous memory (since 3.5). Page frame numbers need `CAP_SYS_ADMIN`; these bits do not.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use crate::event::Addr;

pub const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const FILE_OR_SHARED: u64 = 1 << 61;
/// Entries read at once: 64 KiB of them show 32 MiB of memory.
const BATCH: usize = 8192;

#[derive(Debug)]
pub struct Pagemap {
    file: File,
    buffer: Vec<u8>,
}

/// What is resident in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Pages of the process's own: private anonymous, or a private copy of a file's page.
    pub own: u64,
    /// Pages of files and shared memory.
    pub shared: u64,
}

impl Pagemap {
    /// # Errors
    /// When the process is gone or may not be read.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{pid}/pagemap"))?, buffer: vec![0; BATCH * 8] })
    }

    /// Counts the resident bytes of `start..end` and adds the process's own resident ranges to `extents`, merged with
    /// the last one where they touch.
    ///
    /// # Errors
    /// When the process went away.
    pub fn read(&mut self, start: Addr, end: Addr, extents: &mut Vec<(Addr, u64)>) -> io::Result<Resident> {
        let mut resident = Resident::default();
        let mut page = start / PAGE;
        while page < end / PAGE {
            let wanted = usize::try_from(end / PAGE - page).unwrap_or(BATCH).min(BATCH);
            let Some(buffer) = self.buffer.get_mut(..wanted * 8) else { break };
            let read = self.file.read_at(buffer, page * 8)?;
            if read < 8 {
                // The kernel shows no entries above the top of user space.
                break;
            }
            for entry in buffer[..read - read % 8].chunks_exact(8) {
                resident.add(u64::from_le_bytes(entry.try_into().unwrap_or_default()), page, extents);
                page += 1;
            }
        }
        Ok(resident)
    }
}

impl Resident {
    fn add(&mut self, entry: u64, page: u64, extents: &mut Vec<(Addr, u64)>) {
        if entry & PRESENT == 0 {
            return;
        }
        if entry & FILE_OR_SHARED != 0 {
            self.shared += PAGE;
            return;
        }
        self.own += PAGE;
        let start = page * PAGE;
        match extents.last_mut() {
            Some((last, len)) if *last + *len == start => *len += PAGE,
            _ => extents.push((start, PAGE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_of_our_own_are_seen() {
        let bytes = 64 * PAGE as usize;
        let mut map = memmap2::MmapMut::map_anon(bytes).unwrap();
        for page in [0usize, 1, 2, 10] {
            map[page * PAGE as usize] = 1;
        }
        let start = map.as_ptr() as u64;
        let mut extents = Vec::new();
        let mut pagemap = Pagemap::open(std::process::id()).unwrap();
        let resident = pagemap.read(start, start + bytes as u64, &mut extents).unwrap();
        // Transparent huge pages may make more resident, never less.
        assert!(resident.own >= 4 * PAGE, "{resident:?}");
        assert_eq!(resident.own, extents.iter().map(|&(_, len)| len).sum::<u64>());
        assert!(extents.is_sorted());
    }
}
