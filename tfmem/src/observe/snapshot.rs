//! One observation of a whole process: its mappings, how much of each is resident, and which pages are its own.

use std::{fs, io};

use super::pagemap::{Pagemap, Resident};
use crate::{
    event::{Mapping, MappingKind, Snapshot},
    target::maps::{self, Line},
};

/// A range larger than this and not readable is a reservation: nothing in it can be resident.
const RESERVATION: u64 = 64 << 20;

/// Everything: mappings and resident ranges. Costs about a millisecond for each 50,000 pages of address space.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn full(pid: u32) -> io::Result<Snapshot> {
    let mut snapshot = totals(pid)?;
    let mut pagemap = Pagemap::open(pid)?;
    let mut extents = Vec::new();
    for line in maps::read(pid)? {
        let resident = if line.name == "[vsyscall]" || (!line.readable && line.len() > RESERVATION) {
            Resident::default()
        } else {
            pagemap.read(line.start, line.end, &mut extents)?
        };
        snapshot.mappings.push(mapping(line, resident));
    }
    snapshot.resident = Some(extents);
    Ok(snapshot)
}

/// The resident totals alone.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn totals(pid: u32) -> io::Result<Snapshot> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // A zombie has no memory and no such lines.
    let kib = |name: &str| field(name).unwrap_or(0) * 1024;
    Ok(Snapshot {
        rss_anon: kib("RssAnon:"),
        rss_file: kib("RssFile:"),
        rss_shmem: kib("RssShmem:"),
        ..Snapshot::default()
    })
}

fn mapping(line: Line, resident: Resident) -> Mapping {
    let kind = line.kind();
    let resident_bytes = match kind {
        // The vdso's pages are nobody's and are not part of RSS.
        MappingKind::Kernel => 0,
        _ => resident.own + resident.shared,
    };
    Mapping { start: line.start, len: line.len(), kind, resident_bytes, name: line.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_resident_bytes_add_up_to_rss() {
        // The process runs while it is read, and other tests in it: a few pages come and go, seldom many.
        let adds_up = || {
            let snapshot = full(std::process::id()).unwrap();
            let mapped: u64 = snapshot.mappings.iter().map(|mapping| mapping.resident_bytes).sum();
            let rss = snapshot.rss();
            assert!(snapshot.rss_anon > 0);
            mapped.abs_diff(rss) < rss / 10 + (1 << 20)
        };
        let again = |_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            adds_up()
        };
        assert!((0..50).any(again));
    }
}
