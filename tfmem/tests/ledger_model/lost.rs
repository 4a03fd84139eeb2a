//! Streams with events missing, repeated or made up: the ledger goes on, agrees with itself and counts what is odd.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tfmem::event::{
    Body, Call, Event, ExitStatus, Mapping, MappingKind, Missed, MissedTotal, Origin, ProcessInfo, Snapshot,
};
use tfmem::ledger::types::{Anomalies, BlockLayer, Bound, Change, Totals};
use tfmem::ledger::{Ledger, Process};

use crate::program::{PID, Program};
use crate::{Rng, apply, streams};

/// Every sum kept from event to event against a recount.
fn check(process: &Process) {
    let mut totals = Totals { mapping_bytes: process.memory_map().bytes(), ..Totals::default() };
    let mut regions: HashSet<(u64, u64, u64)> = HashSet::new();
    let mut pools: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut addresses = HashSet::new();
    for block in process.allocations() {
        assert!(addresses.insert((block.layer, block.addr)), "one block at an address");
        match (block.layer, block.pool) {
            (BlockLayer::Chunk, pool) => {
                let pool = pools.entry(pool.unwrap()).or_default();
                *pool = (pool.0 + 1, pool.1 + block.bytes);
                totals.chunks += 1;
                totals.chunk_bytes += block.bytes;
            }
            (BlockLayer::Heap, Some(pool)) => {
                regions.insert((pool, block.addr, block.bytes));
                totals.regions += 1;
                totals.region_bytes += block.bytes;
            }
            // These programs have no GPU.
            (BlockLayer::Device | BlockLayer::Pinned | BlockLayer::Managed, _) => {}
            (BlockLayer::Heap, None) => {
                totals.heap_blocks += 1;
                totals.heap_bytes += block.bytes;
            }
        }
    }
    assert_eq!(process.totals(), totals);
    for pool in process.pools.values() {
        assert_eq!((pool.chunks, pool.in_use), pools.remove(&pool.addr).unwrap_or_default());
        assert!(pool.peak_in_use >= pool.in_use && pool.handed_out >= pool.chunks);
        assert!(pool.regions.is_sorted_by(|a, b| a.start < b.start));
        for region in &pool.regions {
            assert!(regions.remove(&(pool.addr, region.start, region.bytes)));
        }
        let largest = pool.regions.iter().map(|r| r.bytes).max().unwrap_or(0);
        assert!(process.largest_free(pool.addr) <= largest);
    }
    assert!(pools.is_empty() && regions.is_empty(), "every chunk and region has its pool");

    let mut end = 0;
    let mut bytes = 0;
    for range in process.memory_map().iter() {
        assert!(range.start >= end && range.len > 0);
        end = range.end();
        bytes += range.len;
    }
    assert_eq!(bytes, totals.mapping_bytes);

    assert!(process.sessions.is_sorted_by(|a, b| a.id < b.id));
    for s in &process.sessions {
        assert!(s.closed.is_none() || s.closing.is_some());
        assert!(s.deleting.is_none() || s.closing.is_some());
        assert!(s.deleted.is_none() || (s.deleting.is_some() && s.closed.is_some() && s.running == 0));
    }
    let counts = process.session_counts();
    assert!(counts.deleted <= counts.closed && counts.closed <= counts.opened);
}

/// Each change of a session comes once, and in an order that makes sense.
#[derive(Default)]
struct Order(HashMap<(u32, usize, u64), Vec<u8>>);

impl Order {
    fn note(&mut self, pid: u32, life: usize, changes: &[Change]) {
        for change in changes {
            let (id, rank) = match change {
                Change::SessionOpened(id) => (id, 0),
                Change::SessionClosing(id) => (id, 1),
                Change::SessionClosed(id) => (id, 2),
                Change::SessionDeleting(id) => (id, 3),
                Change::SessionDeleted(id) => (id, 4),
                _ => continue,
            };
            let seen = self.0.entry((pid, life, *id)).or_default();
            assert!(!seen.contains(&rank), "{change:?} twice");
            let needs: &[u8] = match rank {
                0 => &[],
                1 => &[0],
                2 | 3 => &[1],
                _ => &[2, 3],
            };
            assert!(needs.iter().all(|n| seen.contains(n)), "{change:?} after {seen:?} only");
            seen.push(rank);
        }
    }
}

const CALLS: [Call; 20] = [
    Call::NewSession,
    Call::LoadSavedModel,
    Call::CloseSession,
    Call::DeleteSession,
    Call::SessionRun,
    Call::DirectSessionNew,
    Call::DirectSessionClose,
    Call::DirectSessionDestroy,
    Call::DirectSessionStep,
    Call::NewGraph,
    Call::DeleteGraph,
    Call::NewContext,
    Call::DeleteContext,
    Call::ClearCaches,
    Call::AddFunction,
    Call::RemoveFunction,
    Call::PoolNew,
    Call::PoolDestroy,
    Call::PoolExtend,
    Call::PoolDeallocateRegions,
];

/// Mostly calls of local sessions, which have most rules.
fn a_call(rng: &mut Rng) -> Call {
    if rng.one_in(3) { *rng.pick(&Call::ALL) } else { *rng.pick(&CALLS) }
}

fn anything(rng: &mut Rng) -> Body {
    let addr = rng.below(48) * 16;
    let pool = rng.below(3);
    let bytes = rng.below(64);
    let (start, len) = (rng.below(64) * 4096, rng.below(10 * 4096));
    let origin = Origin { op: rng.below(3), step: rng.below(8).cast_signed(), ..Origin::default() };
    match rng.below(64) {
        0..=9 => Body::ChunkAlloc { pool, addr, requested: bytes, bytes, origin },
        10..=15 => Body::ChunkFree { pool, addr },
        16..=23 => Body::HeapAlloc { addr, bytes, origin },
        24..=28 => Body::HeapFree { addr },
        29..=31 => Body::Map { start, len, prot: 0, flags: 0x21 + u32::from(rng.one_in(2)), file: rng.one_in(2) },
        32 | 33 => Body::Unmap { start, len },
        34 => Body::Remap {
            old_start: start,
            old_len: rng.below(5 * 4096),
            start: rng.below(64) * 4096,
            len,
            keep_old: rng.one_in(2),
            took: u32::try_from(rng.below(4)).unwrap(),
        },
        35 => Body::Brk { end: start },
        36 => Body::Advise { start, len, advice: 4 },
        37 => Body::Fork { child: 1 + u32::try_from(rng.below(4)).unwrap(), shares_memory: rng.one_in(3) },
        38 if rng.one_in(4) => Body::Exec,
        39 => Body::ThreadExit,
        40 if rng.one_in(4) => Body::Ended { status: Some(ExitStatus::Code(0)) },
        41 => Body::Process(Arc::new(ProcessInfo {
            started_at: rng.below(2) * 1_000_000_000,
            attached: rng.one_in(2),
            job: None,
            ..ProcessInfo::default()
        })),
        42 => {
            let kinds = [MappingKind::Anonymous, MappingKind::Heap, MappingKind::Stack, MappingKind::File];
            let mapping = |rng: &mut Rng| Mapping {
                start: rng.below(64) * 4096,
                len: rng.below(9) * 4096,
                kind: *rng.pick(&kinds),
                resident_bytes: 0,
                name: String::new(),
            };
            // Neither sorted nor disjoint: no kernel says so, a damaged file may.
            let mappings = (0..rng.below(12)).map(|_| mapping(rng)).collect();
            Body::Snapshot(Arc::new(Snapshot { mappings, ..Snapshot::default() }))
        }
        43..=56 => {
            let args = [rng.below(4), rng.below(8), rng.below(8), 0, 0, 0];
            let text = rng.one_in(2).then(|| Arc::from(*rng.pick(&["a", "b", "c"])));
            Body::Enter { call: a_call(rng), args, text }
        }
        57 => Body::Mark { label: Arc::from("mark") },
        58 if rng.one_in(2) => Body::UserEnter { number: 1000 },
        58 => Body::UserLeave { number: 1000 },
        _ => Body::Leave { call: a_call(rng), ret: rng.below(4) },
    }
}

#[test]
fn no_stream_breaks_the_ledger() {
    for (mut rng, events) in streams(320_000) {
        println!("seed {}", rng.seed);
        let (mut ledger, mut again, mut order) = (Ledger::new(), Ledger::new(), Order::default());
        for at in 0..events {
            let pid = 1 + u32::try_from(rng.below(4)).unwrap();
            let tid = pid * 10 + u32::try_from(rng.below(3)).unwrap();
            let event = Event { at, pid, tid, stack: None, body: anything(&mut rng) };
            let (mut changes, mut same) = (Vec::new(), Vec::new());
            ledger.apply(&event, &mut changes);
            again.apply(&event, &mut same);
            assert_eq!(changes, same, "the same events give the same ledger");
            if !changes.is_empty() {
                order.note(pid, ledger.processes().filter(|p| p.pid == pid).count(), &changes);
            }
            if rng.one_in(32) {
                ledger.processes().filter(|p| p.alive()).for_each(check);
            }
            if rng.one_in(4000) {
                ledger.forget_ended(0);
            }
        }
        ledger.processes().for_each(check);
        let mut all: Vec<_> = ledger.processes().map(|p| (p.pid, p.totals(), p.anomalies)).collect();
        assert_eq!(all, again.processes().map(|p| (p.pid, p.totals(), p.anomalies)).collect::<Vec<_>>());
        all.sort_by_key(|p| p.0);
        assert_eq!(ledger.events(), events);
    }
}

#[test]
fn a_program_whose_events_are_partly_lost() {
    for (mut rng, events) in streams(160_000) {
        println!("seed {}", rng.seed);
        let (mut ledger, mut program, mut order) = (Ledger::new(), Program::new(), Order::default());
        let mut lost = 0;
        for at in 1..=events {
            let (tid, body, _, _) = program.next(&mut rng);
            if rng.one_in(50) {
                lost += 1;
                continue;
            }
            let changes = apply(&mut ledger, at, PID, tid, body.clone());
            order.note(PID, 1, &changes);
            if rng.one_in(100) {
                // Told twice.
                order.note(PID, 1, &apply(&mut ledger, at, PID, tid, body));
                lost += 1;
            }
            if rng.one_in(128) {
                check(ledger.process(PID).unwrap());
            }
        }
        let process = ledger.process(PID).unwrap();
        check(process);
        let Anomalies { unpaired_calls, unknown_handles, .. } = process.anomalies;
        assert!(unpaired_calls > 0 && unknown_handles > 0);
        let open = program.sessions.iter().filter(|s| s.deleted.is_none()).count();
        assert!(process.sessions.open().count() <= open + lost, "an end that was lost leaves one session open");
    }
}

/// What was alive before this event, which the ledger has not seen yet.
fn before(alive: &HashMap<u64, u64>, addr: u64, body: &Body, now: u64) -> Option<u64> {
    match body {
        Body::HeapAlloc { .. } => Some(now - alive[&addr]),
        _ => None,
    }
}

/// The truth lies in the bound.
fn contains(bound: Option<Bound>, truth: Option<u64>) {
    let (Some(bound), Some(truth)) = (bound, truth) else { return };
    let (low, high) = (bound.at_least.unwrap(), bound.at_most.unwrap());
    assert!((low..=high).contains(&truth), "{truth} is not in {low}..={high}");
}

#[test]
fn a_lost_event_costs_one_block() {
    for (mut rng, events) in streams(160_000) {
        let (mut ledger, mut alive, mut lost) = (Ledger::new(), HashMap::new(), 0_u64);
        let mut totals: HashMap<Missed, MissedTotal> = HashMap::new();
        for at in 1..=events {
            let addr = 64 * (1 + rng.below(4096));
            let (body, what, bytes) = match alive.remove(&addr) {
                Some(_) => (Body::HeapFree { addr }, Missed::HeapGivenBack, None),
                None => {
                    let bytes = 1 + rng.below(64);
                    alive.insert(addr, bytes);
                    (Body::HeapAlloc { addr, bytes, origin: Origin::default() }, Missed::HeapTaken, Some(bytes))
                }
            };
            if rng.one_in(100) {
                lost += 1;
                let total = totals.entry(what).or_default();
                total.records += 1;
                total.bytes += bytes.unwrap_or(0);
                total.unsized_records += u64::from(bytes.is_none());
                apply(&mut ledger, at, PID, PID, Body::Missed { what, total: *total });
                continue;
            }
            if rng.one_in(500) {
                let truth: u64 = alive.values().sum();
                contains(ledger.process(PID).unwrap().heap_bound(), before(&alive, addr, &body, truth));
            }
            apply(&mut ledger, at, PID, PID + u32::try_from(rng.below(3)).unwrap(), body);
        }
        let process = ledger.process(PID).unwrap();
        let known: HashSet<u64> = process.heap_blocks().map(|b| b.addr).collect();
        let alive: HashSet<u64> = alive.into_keys().collect();
        let wrong = known.symmetric_difference(&alive).count() as u64;
        let Anomalies { unpaired_frees, reused_alive, .. } = process.anomalies;
        assert!(wrong + unpaired_frees + reused_alive <= lost, "{wrong} {unpaired_frees} {reused_alive} {lost}");
        // What was lost shows up sooner or later: as a free of nothing, as an address handed out twice, or as a block.
        assert!(wrong + unpaired_frees + reused_alive >= lost * 9 / 10);
    }
}
