//! The kernel tells of each mapping of code on the machine: perf's `MMAP2` records (`perf_event_open(2)`), of which
//! nobody pays a trap. Needs `CAP_PERFMON` (or `CAP_SYS_ADMIN`) where `perf_event_paranoid` is above -1.

use std::{
    fs, io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use aya_obj::generated::{
    PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page, perf_event_type::PERF_RECORD_LOST,
    perf_event_type::PERF_RECORD_MMAP2, perf_sw_ids::PERF_COUNT_SW_DUMMY, perf_type_id::PERF_TYPE_SOFTWARE,
};
use memmap2::{MmapOptions, MmapRaw};

/// Room for records of one processor: several hundred mappings between two readings.
const DATA: usize = 64 << 10;
const PAGE: usize = 4096;

/// A file's code was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mapped {
    pub pid: u32,
    pub start: u64,
    pub file: File,
}

/// A file as the kernel tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct File {
    pub dev: (u32, u32),
    pub inode: u64,
    pub generation: u64,
}

/// What a reading found.
#[derive(Debug, Default)]
pub struct Reading {
    pub mapped: Vec<Mapped>,
    /// Records that did not fit.
    pub lost: u64,
}

/// The buffers of all processors. Dropping it closes them.
#[derive(Debug)]
pub struct Mappings {
    buffers: Vec<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    _event: OwnedFd,
    ring: MmapRaw,
}

impl Mappings {
    /// # Errors
    /// What the kernel says when it does not let us.
    pub fn open() -> io::Result<Self> {
        let buffers = processors()?.into_iter().filter_map(|cpu| match Buffer::open(cpu) {
            // A processor that went off line meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => None,
            other => Some(other),
        });
        Ok(Self { buffers: buffers.collect::<io::Result<_>>()? })
    }

    /// Takes out what came since the last reading.
    pub fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        for buffer in &mut self.buffers {
            buffer.read(&mut reading);
        }
        reading
    }
}

impl Buffer {
    fn open(cpu: u32) -> io::Result<Self> {
        // SAFETY: integers only; all zero is a valid attribute.
        let mut attr: perf_event_attr = unsafe { std::mem::zeroed() };
        attr.size = size_of::<perf_event_attr>() as u32;
        attr.type_ = PERF_TYPE_SOFTWARE as u32;
        attr.config = PERF_COUNT_SW_DUMMY as u64;
        attr.set_mmap(1);
        attr.set_mmap2(1);
        // SAFETY: the attribute is valid and as long as it says; no process, one processor, no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                -1,
                cpu as libc::c_int,
                -1,
                libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else has.
        let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let ring = MmapOptions::new().len(PAGE + DATA).map_raw(event.as_raw_fd())?;
        Ok(Self { _event: event, ring })
    }

    fn read(&mut self, reading: &mut Reading) {
        let page = self.ring.as_mut_ptr().cast::<perf_event_mmap_page>();
        // SAFETY: the first page of the mapping is this structure, and it lives as long as the mapping; the kernel
        // writes `data_head`, we write `data_tail`, both by the rules of perf_event_open(2).
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let (end, mut at) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        if end.wrapping_sub(at) > DATA as u64 {
            at = end;
        }
        let mut record = Vec::new();
        while at < end {
            self.copy(at, 8, &mut record);
            let size = u64::from(u16::from_ne_bytes([record[6], record[7]]));
            // The kernel writes no such thing.
            if size < 8 || size > end - at {
                break;
            }
            self.copy(at, size as usize, &mut record);
            parse(&record, reading);
            at += size;
        }
        tail.store(end, Ordering::Release);
    }

    /// A record may begin at the buffer's end and go on at its start.
    fn copy(&self, at: u64, len: usize, out: &mut Vec<u8>) {
        out.clear();
        let data = self.ring.as_ptr().wrapping_add(PAGE);
        for i in 0..len as u64 {
            let place = ((at + i) % DATA as u64) as usize;
            // SAFETY: inside the mapping; the kernel has written it before `data_head` said so and does not write there
            // again before `data_tail` is moved.
            out.push(unsafe { data.add(place).read_volatile() });
        }
    }
}

/// A record of `perf_event_open(2)`: type, two bytes of flags, size; of `MMAP2` then pid, tid, address, length, offset,
/// major, minor, inode, its generation, …
fn parse(record: &[u8], reading: &mut Reading) {
    let u32_at = |at: usize| record.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let u64_at = |at: usize| record.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let kind = u32_at(0);
    if kind == PERF_RECORD_LOST as u32 {
        reading.lost = reading.lost.saturating_add(u64_at(16));
    } else if kind == PERF_RECORD_MMAP2 as u32 {
        let file = File { dev: (u32_at(40), u32_at(44)), inode: u64_at(48), generation: u64_at(56) };
        // The vdso and memory without a file have no inode.
        if file.inode != 0 {
            reading.mapped.push(Mapped { pid: u32_at(8), start: u64_at(16), file });
        }
    }
}

/// The numbers in `/sys/devices/system/cpu/online`, such as `0-3,8`.
fn processors() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let numbers = ranges(text.trim());
    if numbers.is_empty() {
        Err(io::Error::other("/sys/devices/system/cpu/online: not understood"))
    } else {
        Ok(numbers)
    }
}

fn ranges(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<u32>().ok()?.min(8191))
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_come_in_ranges() {
        assert_eq!(ranges("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(ranges("0"), [0]);
        assert!(ranges("").is_empty() && ranges("x-y").is_empty());
    }

    #[test]
    fn records_are_read_by_their_layout() {
        let mut record = vec![0_u8; 72];
        record[0..4].copy_from_slice(&10_u32.to_ne_bytes());
        record[8..12].copy_from_slice(&4711_u32.to_ne_bytes());
        record[16..24].copy_from_slice(&0x7f00_u64.to_ne_bytes());
        record[40..44].copy_from_slice(&253_u32.to_ne_bytes());
        record[44..48].copy_from_slice(&1_u32.to_ne_bytes());
        record[48..56].copy_from_slice(&77_u64.to_ne_bytes());
        record[56..64].copy_from_slice(&5_u64.to_ne_bytes());
        let mut reading = Reading::default();
        parse(&record, &mut reading);
        let file = File { dev: (253, 1), inode: 77, generation: 5 };
        assert_eq!(reading.mapped, [Mapped { pid: 4711, start: 0x7f00, file }]);
        parse(&[2, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0], &mut reading);
        assert_eq!(reading.lost, 9);
        for len in 0..record.len() {
            parse(&record[..len], &mut Reading::default());
        }
    }

    #[test]
    fn the_kernel_tells_of_a_program_that_starts() {
        // Where it does not let us, `/proc` is read instead.
        let Ok(mut mappings) = Mappings::open() else { return };
        let child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let reading = mappings.read();
        assert!(reading.mapped.iter().any(|mapped| mapped.pid == pid), "{reading:?}");
        assert!(!mappings.read().mapped.iter().any(|mapped| mapped.pid == pid), "told once");
    }
}
