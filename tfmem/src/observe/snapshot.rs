//! One observation of a whole process: its mappings, how much of each is resident, and which pages are its own.

use std::{fs, io, sync::Arc};

use crate::{
    event::{Body, HeapSeen, Holder, HolderKind, Mapping, Snapshot},
    snapshot::{Clock, Contents, Ground, MOST_HOLDERS, model, space::Area},
    target::memory::Remote,
};

/// Everything: mappings and resident ranges. Costs about a millisecond for each 50,000 pages of address space.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn full(pid: u32) -> io::Result<Seen> {
    // Nobody waits for the walk through the heap: where it cannot be done, everything else is known all the same.
    let memory = Remote::open(pid).ok();
    Ground::read(pid, memory.as_ref(), &mut Clock::default()).map(|ground| seen(ground, None))
}

/// The same at a moment that matters: who holds what, too, where TensorFlow is mapped. Costs about a second for each
/// three gigabytes.
///
/// # Errors
/// As [`full`].
pub fn with_holders(pid: u32) -> io::Result<Seen> {
    let memory = Remote::open(pid).ok();
    let ground = Ground::read(pid, memory.as_ref(), &mut Clock::default())?;
    let holders = memory.and_then(|memory| searched(&memory, &ground));
    Ok(seen(ground, holders))
}

/// Who holds what, alone. `None`: it maps no TensorFlow, or is too large to be searched.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn holders(pid: u32) -> io::Result<Option<Arc<[Holder]>>> {
    let memory = Remote::open(pid)?;
    let ground = Ground::read(pid, Some(&memory), &mut Clock::default())?;
    Ok(searched(&memory, &ground))
}

fn searched(memory: &Remote, ground: &Ground) -> Option<Arc<[Holder]>> {
    // Named by its files to save time where nothing would be found; that they are TensorFlow's is found out by classes.
    let maps_tensorflow = ground.space.areas.iter().any(|area| area.name.contains("tensorflow"));
    if !maps_tensorflow || ground.totals.rss_anon > MOST_SEARCHED {
        return None;
    }
    let mut clock = Clock::default();
    let version = ground.python(&mut clock);
    Some(holders_of(Contents::read(memory, ground, version, &mut clock)))
}

fn seen(ground: Ground, holders: Option<Arc<[Holder]>>) -> Seen {
    let Ground { totals, space, heap, .. } = ground;
    let (areas, own) = space.into_parts();
    let mappings = areas.into_iter().map(mapping).collect();
    let snapshot = Snapshot { mappings, resident: Some(own), ..totals };
    Seen { snapshot, heap: heap.and_then(|heap| heap.seen()), holders }
}

/// Larger processes are not searched: they would stand still for too long at their end.
const MOST_SEARCHED: u64 = 8 << 30;

/// Holders, and what else the search found that tells why memory is there: sessions, what pools have free.
fn holders_of(contents: Contents) -> Arc<[Holder]> {
    let sessions = contents.classes.iter().filter(|class| class.name.ends_with("::DirectSession"));
    let sessions = sessions.filter(|class| class.count > 0).map(|class| Holder {
        kind: HolderKind::Session,
        what: "sessions".to_owned(),
        class: class.name.to_string(),
        count: class.count,
        ..Holder::default()
    });
    let pools = contents.pools.iter().filter_map(|(class, pool)| Some((class, pool.as_ref().ok()?)));
    let pools = pools.map(|(class, pool)| Holder {
        kind: HolderKind::Pool,
        what: "pool".to_owned(),
        class: class.clone(),
        name: pool.name.clone(),
        bytes: pool.region_bytes().saturating_sub(pool.in_use()),
        count: pool.regions.len() as u64,
        ..Holder::default()
    });
    let mut all: Vec<Holder> = sessions.chain(pools).collect();
    let mut held = contents.held.holders;
    held.truncate(MOST_HOLDERS);
    all.extend(held.into_iter().map(holder));
    all.into()
}

fn holder(found: model::Holder) -> Holder {
    let model::Holder { owner, class, name, container, bytes, count, complete, kind, blocks, scope, .. } = found;
    Holder { kind, what: owner, class, name, container, bytes, count, blocks, complete, scope }
}

/// What one look shows.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub snapshot: Snapshot,
    /// `None`: another allocator, or it changed too fast to be read.
    pub heap: Option<HeapSeen>,
    /// `None`: not looked for.
    pub holders: Option<Arc<[Holder]>>,
}

impl From<Snapshot> for Seen {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot, heap: None, holders: None }
    }
}

impl Seen {
    /// As events, in the order in which they are told.
    pub fn bodies(self) -> impl Iterator<Item = Body> {
        let walked = self.heap.map(Body::Heap).into_iter().chain(self.holders.map(Body::Holders));
        walked.chain([Body::Snapshot(Arc::new(self.snapshot))])
    }
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

fn mapping(area: Area) -> Mapping {
    // The vdso's pages are nobody's and are not part of RSS: they are not looked at.
    let resident_bytes = area.resident.own + area.resident.shared;
    let len = area.range.end - area.range.start;
    Mapping { start: area.range.start, len, kind: area.kind, resident_bytes, name: area.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_resident_bytes_add_up_to_rss() {
        // The process runs while it is read, and other tests in it: a few pages come and go, seldom many.
        let adds_up = || {
            let snapshot = full(std::process::id()).unwrap().snapshot;
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
