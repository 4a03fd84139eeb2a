//! The mapping storm under `tfmem run`: what the ledger made of its events, a naive model of them, and what the program
//! itself says of its map must be one.

use std::{collections::BTreeMap, fs::File, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tfmem::{
    attach::memory::Backend,
    event::{Body, Event, Mapping, MappingKind, Snapshot},
    ledger::{Ledger, types::Change},
    recording::reader::Reader,
};

use super::{
    fixtures, machine,
    mapped::{Mapped, Naive},
    program::Program,
};

/// What came of it.
pub struct Storm {
    /// How often the program did what, in its last image.
    pub done: BTreeMap<String, u64>,
    /// The losses of the report that are not 0.
    pub losses: BTreeMap<String, u64>,
    /// What its own `/proc/self/maps` shows, as far as events tell of such mappings.
    pub own: Mapped,
    pub ledger: Mapped,
    pub naive: Mapped,
    /// Segments of System V that stayed attached: bytes.
    pub segments: u64,
    /// Forked children that were compared with what the kernel showed of them at their end.
    pub children: u64,
    /// Bytes that were wrong in those.
    pub wrong_in_children: u64,
}

impl Storm {
    /// All know the same mappings, of the program and of its children.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.own == self.ledger && self.own == self.naive && self.wrong_in_children == 0
    }
}

/// On a machine that stands still for a while events can come too late; then the report says so, and the run is made
/// again.
const ATTEMPTS: u32 = 3;

/// Threads of the program: it makes so many calls each.
pub const THREADS: u64 = 3;

/// Runs it with so many calls in all.
///
/// # Errors
/// When it, or tfmem, does not do what it should.
pub fn run(seed: u64, calls: u64, with_segments: bool, how: Backend) -> Result<Storm> {
    let mut storm = run_once(seed, calls, with_segments, how)?;
    for _ in 1..ATTEMPTS {
        // One that is exact all the same proves what it should.
        if storm.losses.contains_key("events_late") && !storm.is_exact() {
            storm = run_once(seed, calls, with_segments, how)?;
        }
    }
    Ok(storm)
}

fn run_once(seed: u64, calls: u64, with_segments: bool, how: Backend) -> Result<Storm> {
    let folder = TempDir::new()?;
    let (report, recording) = (folder.path().join("report.json"), folder.path().join("recording"));
    let program = Program::new(machine::tfmem()?)
        .args(["run", "--mm", how.name(), "--format", "json", "--report-file"])
        .arg(&report)
        .arg("-o")
        .arg(&recording)
        .arg("--")
        .arg(fixtures::get()?.mapping_storm())
        .args([seed.to_string(), calls.div_ceil(THREADS).to_string()])
        .args(with_segments.then_some("shm"))
        // Some ten times what an emulated processor takes.
        .limit(Duration::from_secs(180) + Duration::from_millis(10 * calls));
    let output = program.run()?;
    ensure!(output.code == 0, "status {}\n{}", output.code, output.stderr);
    let report: Value = serde_json::from_slice(&std::fs::read(&report)?)?;
    let losses: BTreeMap<String, u64> = serde_json::from_value(report["losses"].clone())?;
    let (first, maps) = output.stdout.split_once('\n').context("the storm said nothing")?;
    let shown = own_maps(maps)?;
    let mut replay = Replay::file(&recording, how)?;
    let main = replay.main.context("nobody was traced")?;
    let end = replay.ends.remove(&main).context("the program was not seen at its end")?;
    Ok(Storm {
        done: serde_json::from_str(first).context("the storm's own counts")?,
        losses: losses.into_iter().filter(|(kind, count)| *count > 0 && kind != UNTOLD).collect(),
        own: Mapped::of(shown.iter().filter(|m| told(m, how)).map(|m| (m.start, m.len))),
        segments: shown.iter().filter(|m| m.name.starts_with("/SYSV")).map(|m| m.len).sum(),
        ledger: end.ledger,
        naive: end.naive,
        children: replay.ends.len() as u64,
        wrong_in_children: replay.ends.values().map(|end| end.shown.difference(&end.ledger)).sum(),
    })
}

fn own_maps(text: &str) -> Result<Vec<Mapping>> {
    let line = |line: &str| -> Option<Mapping> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let name = words.nth(4).unwrap_or_default().to_owned();
        Some(Mapping { start, len: end - start, kind: MappingKind::Anonymous, resident_bytes: 0, name })
    };
    text.lines().map(|text| line(text).with_context(|| format!("not a line of a map: {text}"))).collect()
}

/// What no event tells of by the way the map is followed: not a loss of events.
const UNTOLD: &str = "mapping_untold_bytes";

/// The kernel's own pages and the stack come about without a call that is seen, and segments of System V with none that
/// has a tracepoint here.
fn told(mapping: &Mapping, how: Backend) -> bool {
    let special = mapping.name.starts_with('[') && mapping.name != "[heap]";
    !special && (how != Backend::Tracepoint || !mapping.name.starts_with("/SYSV"))
}

/// A ledger that is shown nothing of a process but what was there when its program began, and the naive model beside it.
#[derive(Default)]
struct Replay {
    ledger: Ledger,
    changes: Vec<Change>,
    naive: BTreeMap<u32, Naive>,
    /// Processes that run in another's memory, with whose
    guests: BTreeMap<u32, u32>,
    /// The process that was traced first
    main: Option<u32>,
    ends: BTreeMap<u32, End>,
}

/// A process as the kernel showed it when it ended, and as the two had it.
struct End {
    shown: Mapped,
    ledger: Mapped,
    naive: Mapped,
}

impl Replay {
    fn file(path: &Path, how: Backend) -> Result<Self> {
        let mut events = Reader::open(File::open(path)?)?;
        let mut replay = Self::default();
        for event in &mut events {
            replay.feed(&event, how);
        }
        ensure!(events.end().tail.is_some(), "the recording was cut short");
        Ok(replay)
    }

    /// The process in whose memory this one runs.
    fn host(&self, pid: u32) -> u32 {
        self.guests.get(&pid).copied().unwrap_or(pid)
    }

    fn feed(&mut self, event: &Event, how: Backend) {
        if let Body::Process(_) = event.body {
            self.main.get_or_insert(event.pid);
        }
        if let Body::Fork { child, shares_memory } = event.body {
            self.guests.remove(&child);
            if shares_memory {
                self.guests.insert(child, self.host(event.pid));
            } else {
                let copy = self.naive.get(&self.host(event.pid)).cloned().unwrap_or_default();
                self.naive.insert(child, copy);
            }
        }
        if let Body::Exec = event.body {
            self.guests.remove(&event.pid);
        }
        let host = self.host(event.pid);
        if host != event.pid && matches!(event.body, Body::Snapshot(_)) {
            // Its host's memory, in the midst of its host's calls.
            return;
        }
        let model = self.naive.entry(host).or_default();
        let Body::Snapshot(snapshot) = &event.body else {
            model.apply(event);
            self.ledger.apply(event, &mut self.changes);
            self.changes.clear();
            return;
        };
        // Polled, looks are all there is to know; on a slow machine the one at the end may be the first.
        let is_end = snapshot.at_exit && (model.begun || how == Backend::Poll);
        if !snapshot.mappings.is_empty() && (!model.begun || how == Backend::Poll) {
            model.apply(event);
            self.ledger.apply(event, &mut self.changes);
            self.changes.clear();
        }
        if is_end {
            let naive = model.mapped();
            let ledger = ledger_of(&self.ledger, event.pid);
            self.ends.insert(event.pid, End { shown: shown(snapshot, how), ledger, naive });
        }
    }
}

fn shown(snapshot: &Snapshot, how: Backend) -> Mapped {
    let told = |m: &&Mapping| told(m, how) && !matches!(m.kind, MappingKind::Stack | MappingKind::Kernel);
    Mapped::of(snapshot.mappings.iter().filter(told).map(|m| (m.start, m.len)))
}

fn ledger_of(ledger: &Ledger, pid: u32) -> Mapped {
    let Some(process) = ledger.process(pid) else { return Mapped::default() };
    let told = |kind| !matches!(kind, MappingKind::Stack | MappingKind::Kernel);
    Mapped::of(process.memory_map().iter().filter(|r| told(r.kind)).map(|r| (r.start, r.len)))
}
