//! `/proc`, read again and again at little cost: of a process whose size did not change since it was looked at, nothing
//! but one line is read.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

/// A process that grows all the time is looked at this often.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Known {
    /// When it started: a pid may be another process's.
    started: u64,
    /// Bytes that it maps: a library that is loaded changes them.
    size: u64,
    looked: Option<Instant>,
}

#[derive(Debug, Default)]
pub struct Scan {
    known: BTreeMap<u32, Known>,
}

impl Scan {
    /// Processes that are new or changed their size since they were given last.
    pub fn changed(&mut self) -> Vec<u32> {
        let us = std::process::id();
        let mut seen = BTreeMap::new();
        for pid in processes().filter(|&pid| pid != us) {
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            let Some((started, size)) = parse(&stat) else { continue };
            // A kernel thread, or one that has ended.
            if size != 0 {
                seen.insert(pid, (started, size));
            }
        }
        self.compare(seen, Instant::now())
    }

    fn compare(&mut self, seen: BTreeMap<u32, (u64, u64)>, now: Instant) -> Vec<u32> {
        self.known.retain(|pid, _| seen.contains_key(pid));
        let mut changed = Vec::new();
        for (pid, (started, size)) in seen {
            let fresh = Known { started, size: 0, looked: None };
            let known = self.known.entry(pid).or_insert(fresh);
            if known.started != started {
                *known = fresh;
            }
            let rested = known.looked.is_none_or(|looked| now.duration_since(looked) >= AGAIN);
            if known.size != size && rested {
                known.size = size;
                known.looked = Some(now);
                changed.push(pid);
            }
        }
        changed
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Start (field 22) and bytes of address space (field 23), see proc(5). The name may hold anything: it ends at the last
/// parenthesis.
fn parse(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(19);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_behind_the_name() {
        let stat = "12 (a) R 1 (b)) S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 8192 3 0";
        assert_eq!(parse(stat), Some((4242, 8192)));
        assert_eq!(parse("12 (a"), None);
    }

    #[test]
    fn a_process_is_given_when_it_is_new_or_changed() {
        let mut scan = Scan::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = |size| BTreeMap::from([(7, (100, size))]);
        assert_eq!(scan.compare(seen(4096), at(0)), [7]);
        assert!(scan.compare(seen(4096), at(5)).is_empty(), "nothing changed");
        assert_eq!(scan.compare(seen(8192), at(6)), [7]);
        assert!(scan.compare(seen(9000), at(6)).is_empty(), "looked at just now");
        assert_eq!(scan.compare(seen(9000), at(8)), [7], "not forgotten");
        // Another process with this pid.
        assert_eq!(scan.compare(BTreeMap::from([(7, (200, 9000))]), at(8)), [7]);
        scan.compare(BTreeMap::new(), at(9));
        assert_eq!(scan.compare(BTreeMap::from([(7, (200, 9000))]), at(10)), [7]);
    }

    #[test]
    fn we_see_others_and_not_ourselves() {
        let child = std::process::Command::new("sleep").arg("5").spawn();
        let mut child = child.unwrap();
        let changed = Scan::default().changed();
        assert!(changed.contains(&child.id()) && !changed.contains(&std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
