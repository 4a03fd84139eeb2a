//! Code made at run time: programs that make it can write `/tmp/perf-PID.map`, as `perf` reads it (CPython with
//! `-X perf`, XLA, V8). A line is `START SIZE name`, both figures hexadecimal.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::{demangle::demangle, place_name};
use crate::report::model::{Frame, FrameKind, Unknown};
use crate::report::units::plain;

/// Bytes that are read of a map: it belongs to the traced program, or to whoever made a file of that name.
const MOST_BYTES: u64 = 256 << 20;
const LONGEST_LINE: u64 = 4096;
/// How far back an entry is looked for that covers an address.
const NESTED: usize = 32;

#[derive(Debug)]
struct Entry {
    start: u64,
    size: u64,
    name: String,
}

/// What the map says, in order of address; where places were used again, the later entry after the earlier.
#[derive(Debug, Default)]
pub struct PerfMap {
    entries: Vec<Entry>,
}

impl PerfMap {
    /// The map of a process (`pid` as it sees itself) under the root that it sees. `None`: there is none.
    #[must_use]
    pub fn of(root: &Path, pid: u32) -> Option<Self> {
        let path = root.join(format!("tmp/perf-{pid}.map"));
        // The name is anyone's to take: no waiting for a FIFO, and no following of links out of the root.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Self::read(BufReader::new(File::take(file, MOST_BYTES))))
    }

    /// Lines that make no sense are left out.
    pub fn read(mut input: impl BufRead) -> Self {
        let mut entries = Vec::new();
        let mut line = Vec::new();
        while let Ok(1..) = input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            entries.extend(entry(&String::from_utf8_lossy(&line)));
            line.clear();
        }
        entries.sort_by_key(|entry: &Entry| entry.start);
        Self { entries }
    }

    /// What is at an address of the process.
    #[must_use]
    pub fn frame(&self, address: u64) -> Frame {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        let near = self.entries.get(behind.saturating_sub(NESTED)..behind).unwrap_or_default();
        match near.iter().rev().find(|entry| address - entry.start < entry.size) {
            Some(entry) => Frame { address: Some(address), ..named(&entry.name) },
            None => without_name(address, Unknown::NotInMap),
        }
    }
}

/// A place in no file.
#[must_use]
pub fn without_name(address: u64, reason: Unknown) -> Frame {
    let name = place_name(None, address);
    Frame { address: Some(address), unknown: Some(reason), ..Frame::named(FrameKind::Native, name) }
}

fn entry(line: &str) -> Option<Entry> {
    let mut parts = line.trim_end().splitn(3, ' ');
    let mut figure = || {
        let text = parts.next()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (figure()?, figure()?);
    let name = plain(parts.next()?, 1000);
    (size > 0 && !name.is_empty()).then_some(Entry { start, size, name })
}

/// CPython writes `py::function:/file.py`.
fn named(name: &str) -> Frame {
    match name.strip_prefix("py::").and_then(|rest| rest.split_once(':')) {
        Some((function, file)) => Frame { file: Some(file.to_owned()), ..Frame::named(FrameKind::Python, function) },
        None => Frame::named(FrameKind::Native, demangle(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_by_the_latest_entry_that_covers_them() {
        let map = PerfMap::read(
            b"7f0000001000 100 first\n0x7f0000001000 80 second with spaces\nnonsense\n7f0000002000 0 empty\n\
              7f0000003000 10 py::open_job:/srv/train.py\n7f0000004000 ffffffffffffffff _ZN1a1bEv\n\xff\xfe 1 2\n"
                .as_slice(),
        );
        let name = |address| map.frame(address).name;
        assert_eq!(name(0x7f00_0000_1010), "second with spaces");
        assert_eq!(name(0x7f00_0000_1090), "first");
        assert_eq!(name(u64::MAX), "a::b");
        assert_eq!(map.frame(0x7f00_0000_2000).unknown, Some(Unknown::NotInMap));
        assert_eq!(map.frame(1), without_name(1, Unknown::NotInMap));
        let python = map.frame(0x7f00_0000_3001);
        assert_eq!(
            (python.kind, python.name.as_str(), python.file.as_deref()),
            (FrameKind::Python, "open_job", Some("/srv/train.py"))
        );
    }
}
