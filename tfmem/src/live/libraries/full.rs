//! Where rare events alone are wanted: probes on what happens all the time are in a file only while a process that maps
//! it is traced in full. Other processes that map it pay the trap meanwhile; the BPF programs leave at once for them.

use std::{collections::BTreeSet, sync::Arc};

use tfmem_common::cookie::Cookie;

use super::{FileKey, Judgement, Libraries, Probed, Which, code_of, key};
use crate::{
    attach::{
        link::{Kept, Programs},
        plan::{Plan, Point},
    },
    catalogue::{ENTRIES, Program},
    event::{Body, Call, Event, LibraryInfo},
    target::clock,
};

/// A file that nobody maps any more keeps its probes for so long: the next job often is of the same kind.
const KEPT_NS: u64 = 60_000_000_000;
/// Files without probes that are remembered.
const MOST_NOTHING: usize = 4096;

/// The probes of a file.
#[derive(Debug)]
pub(super) struct Rare {
    rare: Kept,
    full: Kept,
    /// Who is traced in full.
    users: BTreeSet<u32>,
    /// The library as one who has all probes sees it.
    info: LibraryInfo,
}

impl Rare {
    pub fn new(rare: Kept, info: &LibraryInfo) -> Self {
        Self { rare, full: Kept::default(), users: BTreeSet::new(), info: info.clone() }
    }

    fn remove(self) {
        self.rare.remove();
        self.full.remove();
    }
}

/// Does what this probe tells happen seldom?
pub(super) fn is_rare(point: &Point) -> bool {
    let generic = [Program::CallAndReturn.enter(), "call_leave"].contains(&point.program.as_str());
    generic && Call::from_number(Cookie::unpack(point.cookie).call).is_some_and(|call| !call.is_step())
}

/// The library as one sees it who has the rare probes alone: the report must say to what it is blind.
pub(super) fn as_seen_rarely(plan: &Plan, info: LibraryInfo) -> LibraryInfo {
    let left_out = |name: &str| plan.points.iter().any(|point| point.entry == name && !is_rare(point));
    let steps = |name: &str| ENTRIES.iter().any(|e| e.name == name && e.call.is_some());
    let blind = ENTRIES.iter().map(|e| e.name).filter(|name| left_out(name) && !steps(name)).map(str::to_owned);
    let blind = info.blind.iter().cloned().chain(blind).collect();
    LibraryInfo { blind, ..info }
}

impl Libraries {
    /// Traces a process in full from now on: puts in what is missing in the files that it maps. Says how it sees them.
    pub fn full(&mut self, programs: &mut Programs, pid: u32) -> Vec<Event> {
        let mut events = Vec::new();
        for line in code_of(pid) {
            if !self.announced.contains(&(pid, key(&line))) {
                continue;
            }
            let Some(Judgement::Probed(probed)) = self.files.get_mut(&key(&line)) else { continue };
            let Probed { plan, rare: Some(rare), .. } = &mut **probed else { continue };
            if rare.full.is_empty() {
                let points = plan.points.iter().filter(|point| !is_rare(point));
                let (kept, refused) = programs.attach_kept(&line.reachable(pid), points);
                for (symbol, error) in &refused {
                    log::warn!("{}: no probe on {symbol}: {error}", line.name);
                }
                rare.full = kept;
            }
            // A library has several mappings of code.
            if rare.users.insert(pid) {
                let info = LibraryInfo { probes: (rare.rare.len() + rare.full.len()) as u32, ..rare.info.clone() };
                events.push(Event::of(clock::boot_ns(), pid, pid, Body::Library(Arc::new(info))));
            }
        }
        events
    }

    /// Ends that: what nobody needs any more goes.
    pub fn rare(&mut self, pid: u32) {
        for judgement in self.files.values_mut() {
            let Judgement::Probed(probed) = judgement else { continue };
            let Some(rare) = &mut probed.rare else { continue };
            if rare.users.remove(&pid) && rare.users.is_empty() {
                std::mem::take(&mut rare.full).remove();
            }
        }
    }

    /// Takes the probes out of files that nobody has mapped for a while. A probe holds its file, and a name can be
    /// another file's by then.
    pub fn sweep(&mut self, now: u64) {
        if self.which != Which::Rare {
            return;
        }
        let used: BTreeSet<FileKey> = self.announced.iter().map(|&(_, key)| key).collect();
        let probed = self.files.iter().filter(|(_, judgement)| !matches!(judgement, Judgement::Nothing));
        let unused: Vec<FileKey> = probed.map(|(key, _)| *key).filter(|key| !used.contains(key)).collect();
        self.unused.retain(|key, _| unused.contains(key));
        for key in unused {
            let since = *self.unused.entry(key).or_insert(now);
            if now.saturating_sub(since) < KEPT_NS {
                continue;
            }
            self.unused.remove(&key);
            if let Some(Judgement::Probed(probed)) = self.files.remove(&key)
                && let Some(rare) = probed.rare
            {
                rare.remove();
            }
        }
        if self.files.len() > MOST_NOTHING {
            self.files.retain(|_, judgement| !matches!(judgement, Judgement::Nothing));
        }
    }

    /// Probes that are in, and files with probes.
    pub fn counts(&self) -> (usize, usize) {
        let rare = self.files.values().filter_map(|judgement| match judgement {
            Judgement::Probed(probed) => probed.rare.as_ref(),
            _ => None,
        });
        rare.fold((0, 0), |(probes, files), rare| (probes + rare.rare.len() + rare.full.len(), files + 1))
    }
}
