//! The address space, page by page.

use std::collections::HashMap;
use std::sync::Arc;

use tfmem::event::{Body, Mapping, MappingKind, Snapshot};
use tfmem::ledger::{Ledger, MemoryMap};

use crate::{Rng, apply, streams};

const PAGE: u64 = 4096;
const PAGES: u64 = 160;
/// The break moves in here, where nothing else is mapped.
const HEAP: u64 = 200;

type Page = (MappingKind, Option<u64>);

#[derive(Clone, Default)]
struct Model {
    /// What the ledger should show.
    pages: HashMap<u64, Page>,
    /// What is there, lost events included.
    truth: HashMap<u64, MappingKind>,
    compared: bool,
    /// The page of the break, in the truth and as events told.
    heap: Option<u64>,
    drift: u64,
    advised: u64,
    alive: bool,
}

impl Model {
    fn set(&mut self, page: u64, what: Option<Page>, told: bool) {
        match what {
            Some(what) => {
                self.truth.insert(page, what.0);
                if told {
                    self.pages.insert(page, what);
                }
            }
            None => {
                self.truth.remove(&page);
                if told {
                    self.pages.remove(&page);
                }
            }
        }
    }

    fn remap(&mut self, old: (u64, u64), new: (u64, u64), keep_old: bool, at: u64) {
        if old.1 == 0 {
            let kind = self.pages.get(&old.0).map_or(MappingKind::Shared, |p| p.0);
            for page in new.0..new.0 + new.1 {
                self.set(page, Some((kind, Some(at))), true);
            }
            return;
        }
        let moved: Vec<Option<Page>> = (old.0..old.0 + old.1).map(|p| self.pages.get(&p).copied()).collect();
        if !keep_old {
            for page in old.0..old.0 + old.1 {
                self.set(page, None, true);
            }
        }
        let kind = moved.iter().flatten().next_back().map_or(MappingKind::Anonymous, |p| p.0);
        for i in 0..new.1 {
            let source = usize::try_from(i).unwrap().min(moved.len() - 1);
            let birth = moved[source].map_or((kind, None), |p| p);
            self.set(new.0 + i, Some(birth), true);
        }
    }

    fn compare(&mut self) {
        self.drift = 0;
        for page in 0..HEAP + PAGES {
            let (shown, known) = (self.truth.get(&page), self.pages.get(&page));
            let silent = |kind: MappingKind| matches!(kind, MappingKind::Stack | MappingKind::Kernel);
            match (shown, known) {
                (Some(&kind), None) => {
                    self.drift += u64::from(!silent(kind));
                    self.pages.insert(page, (kind, None));
                }
                (None, Some(known)) => {
                    self.drift += u64::from(!silent(known.0));
                    self.pages.remove(&page);
                }
                (Some(&kind), Some(&(_, birth))) => {
                    self.pages.insert(page, (kind, birth));
                }
                (None, None) => {}
            }
        }
        if !std::mem::replace(&mut self.compared, true) {
            self.drift = 0;
        }
        self.drift *= PAGE;
        let heap = (HEAP..HEAP + PAGES).take_while(|p| self.truth.contains_key(p)).count() as u64;
        if heap > 0 {
            self.heap = Some(HEAP + heap);
        }
    }

    fn observation(&self, rng: &mut Rng) -> Snapshot {
        let mut mappings: Vec<Mapping> = Vec::new();
        for page in 0..HEAP + PAGES {
            let Some(&kind) = self.truth.get(&page) else { continue };
            // Entries split where protections differ.
            match mappings.last_mut() {
                Some(last) if last.start + last.len == page * PAGE && last.kind == kind && !rng.one_in(4) => {
                    last.len += PAGE;
                }
                _ => mappings.push(Mapping {
                    start: page * PAGE,
                    len: PAGE,
                    kind,
                    resident_bytes: 0,
                    name: String::new(),
                }),
            }
        }
        Snapshot { mappings, ..Snapshot::default() }
    }

    fn check(&self, map: &MemoryMap) {
        let mut seen = 0;
        let mut last = 0;
        for range in map.iter() {
            assert!(range.start >= last && range.len > 0, "disjoint, in order");
            last = range.end();
            for page in range.start / PAGE..range.end() / PAGE {
                assert_eq!(self.pages.get(&page), Some(&(range.kind, range.born)), "page {page}");
                seen += 1;
            }
        }
        assert_eq!(seen, self.pages.len());
        assert_eq!(map.bytes(), seen as u64 * PAGE);
    }
}

/// A length that the kernel rounds up to as many pages.
fn rough(rng: &mut Rng, pages: u64) -> u64 {
    if pages == 0 { 0 } else { pages * PAGE - rng.below(PAGE) }
}

#[test]
fn the_map_is_what_page_after_page_says() {
    for (mut rng, events) in streams(240_000) {
        let mut ledger = Ledger::new();
        let mut models: Vec<Model> = (0..4).map(|i| Model { alive: i == 0, ..Model::default() }).collect();
        println!("seed {}", rng.seed);
        for at in 1..=events {
            let alive: Vec<usize> = (0..4).filter(|&i| models[i].alive).collect();
            let i = *rng.pick(&alive);
            let pid = 100 + u32::try_from(i).unwrap();
            let start = rng.below(PAGES);
            let pages = 1 + rng.below(12).min(PAGES - start - 1);
            let model = &mut models[i];
            let mut body = None;
            match rng.below(40) {
                0..=13 => {
                    let file = rng.one_in(3);
                    let kind = if file { MappingKind::File } else { MappingKind::Anonymous };
                    (start..start + pages).for_each(|p| model.set(p, Some((kind, Some(at))), true));
                    let len = rough(&mut rng, pages);
                    body = Some(Body::Map { start: start * PAGE, len, prot: 3, flags: 0x22, file });
                }
                14..=23 => {
                    (start..start + pages).for_each(|p| model.set(p, None, true));
                    body = Some(Body::Unmap { start: start * PAGE, len: rough(&mut rng, pages) });
                }
                24..=29 => {
                    let to = if rng.one_in(2) { start } else { rng.below(PAGES) };
                    let len = 1 + rng.below(12).min(PAGES - to - 1);
                    let (old, keep_old) = (if rng.one_in(8) { 0 } else { pages }, rng.one_in(4));
                    model.remap((start, old), (to, len), keep_old, at);
                    body = Some(Body::Remap {
                        old_start: start * PAGE,
                        old_len: rough(&mut rng, old),
                        start: to * PAGE,
                        len: rough(&mut rng, len),
                        keep_old,
                        took: 0,
                    });
                }
                30..=32 => {
                    let end = HEAP + rng.below(PAGES);
                    // The first break seen tells where the heap starts: let it tell the truth.
                    let old = model.heap.unwrap_or(HEAP);
                    let end = if model.heap.is_none() { HEAP } else { end };
                    (end..old).for_each(|p| model.set(p, None, true));
                    (old..end).for_each(|p| model.set(p, Some((MappingKind::Heap, Some(at))), true));
                    model.heap = Some(end);
                    body = Some(Body::Brk { end: rough(&mut rng, end) });
                }
                33 => {
                    model.advised += PAGE;
                    body = Some(Body::Advise { start: start * PAGE, len: PAGE, advice: *rng.pick(&[4, 8, 9, 24]) });
                }
                // Events that were lost, and what the kernel does by itself.
                34 => {
                    let kinds = [MappingKind::Anonymous, MappingKind::File, MappingKind::Stack, MappingKind::Kernel];
                    let kind = *rng.pick(&kinds);
                    (start..start + pages).for_each(|p| model.set(p, Some((kind, None)), false));
                }
                35 => (start..start + pages).for_each(|p| model.set(p, None, false)),
                36 => {
                    let snapshot = model.observation(&mut rng);
                    if !snapshot.mappings.is_empty() {
                        model.compare();
                    }
                    body = Some(Body::Snapshot(Arc::new(snapshot)));
                }
                37 => {
                    if let Some(child) = (0..4).find(|&c| !models[c].alive) {
                        models[child] = Model { drift: 0, advised: 0, ..models[i].clone() };
                        let child = 100 + u32::try_from(child).unwrap();
                        body = Some(Body::Fork { child, shares_memory: false });
                    }
                }
                38 if rng.one_in(4) => {
                    let (advised, drift) = (model.advised, model.drift);
                    *model = Model { alive: true, advised, drift, ..Model::default() };
                    body = Some(Body::Exec);
                }
                39 if rng.one_in(4) && alive.len() > 1 => {
                    model.alive = false;
                    body = Some(Body::Ended { status: None });
                }
                _ => {}
            }
            let Some(body) = body else { continue };
            apply(&mut ledger, at, pid, pid, body);
            if rng.one_in(32) {
                for (model, pid) in models.iter().zip(100..).filter(|(m, _)| m.alive) {
                    // The first one is made by its first event.
                    let Some(process) = ledger.process(pid) else { continue };
                    model.check(process.memory_map());
                    assert_eq!(process.anomalies.mapping_drift_bytes, model.drift);
                    assert_eq!(process.advised_bytes, model.advised);
                }
            }
        }
    }
}
