//! Streams no program would make: nothing in them may break a report, and its sums still agree.

use std::sync::Arc;

use super::check;
use crate::event::{Body, Call, Event, ExitStatus, Mapping, MappingKind, Origin, Snapshot};
use crate::report::model::{BoundaryKind, Report};
use crate::report::text::{Style, WIDTH, render};
use crate::retention::testing::facts;
use crate::retention::{Analysis, Options};

/// A small generator (xorshift): the same seed gives the same stream.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn body(&mut self) -> Body {
        let addr = 0x1000 * (1 + self.below(40));
        let bytes = match self.below(30) {
            0 => u64::MAX,
            1 => 0,
            _ => 0x1000 * (1 + self.below(2000)),
        };
        let pool = 1 + self.below(2);
        let origin = Origin { op: self.below(4), step: self.below(3).cast_signed(), region: *b"output\0\0", dtype: 1 };
        let handle = 1 + self.below(4);
        let args = [handle, 0, self.below(3), 0, 0, 0];
        let call = match self.below(24) {
            12..24 => Call::ALL[self.below(Call::ALL.len() as u64) as usize],
            0 => Call::NewSession,
            1 | 2 => Call::CloseSession,
            3 => Call::DeleteSession,
            4 | 5 => Call::SessionRun,
            6 => Call::NewContext,
            7 => Call::DeleteContext,
            8 => Call::ClearCaches,
            9 => Call::PoolExtend,
            10 => Call::PoolNew,
            _ => Call::PoolDestroy,
        };
        match self.below(40) {
            0..8 => Body::ChunkAlloc { pool, addr, requested: bytes, bytes, origin },
            8..12 => Body::ChunkFree { pool, addr },
            12..18 => Body::HeapAlloc { addr, bytes, origin },
            18..21 => Body::HeapFree { addr },
            21..26 => {
                let text = (self.below(2) == 0).then(|| ["a", "b"][self.below(2) as usize].into());
                Body::Enter { call, args, text }
            }
            26 => match self.below(4) {
                0 => Body::Mark { label: "m".into() },
                1 => Body::UserSymbol { number: 1000, name: "lib:f".into(), entry_only: self.below(2) == 0 },
                2 => Body::UserEnter { number: 1000 },
                _ => Body::UserLeave { number: 1000 },
            },
            27..33 => Body::Leave { call, ret: self.below(5) },
            33 => Body::Map { start: addr, len: bytes % (1 << 40), prot: 3, flags: 0x22, file: false },
            34 => Body::Unmap { start: addr, len: 0x5000 },
            35 => Body::Fork { child: 10 + self.below(6) as u32, shares_memory: self.below(4) == 0 },
            36 if self.below(4) == 0 => Body::Ended { status: Some(ExitStatus::Code(0)) },
            37 if self.below(4) == 0 => Body::Exec,
            38 => Body::OpName { op: self.below(4), name: "w/Assign".into() },
            _ => Body::Snapshot(Arc::new(self.snapshot())),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let start = 0x1000 * (1 + self.below(60));
        let mapping = Mapping {
            start,
            len: 0x8000,
            kind: MappingKind::Anonymous,
            resident_bytes: 0x1000 * self.below(9),
            name: String::new(),
        };
        Snapshot {
            rss_anon: 0x1000 * self.below(300),
            rss_file: 0x1000 * self.below(300),
            rss_shmem: 0,
            mappings: if self.below(2) == 0 { vec![mapping] } else { Vec::new() },
            resident: (self.below(3) > 0).then(|| vec![(start, 0x3000), (start + 0x4000, 0x2000)]),
            at_exit: self.below(5) == 0,
        }
    }
}

fn noise(seed: u64) -> (Report, bool) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut analysis = Analysis::new(Options { grace_ns: 500, min_bytes: 1 << 20, ..Options::default() });
    let mut at = 1000;
    let mut huge = false;
    for _ in 0..600 {
        // A little out of order now and then, as events of several CPUs can be.
        at = (at + dice.below(60)).saturating_sub(dice.below(8));
        let pid = 10 + dice.below(3) as u32;
        let body = dice.body();
        huge |= matches!(body, Body::ChunkAlloc { bytes: u64::MAX, .. } | Body::HeapAlloc { bytes: u64::MAX, .. });
        analysis.feed(&Event { at, pid, tid: pid + dice.below(2) as u32, stack: None, body });
    }
    if dice.below(2) == 0 {
        analysis.feed(&Event { at: at + 10, pid: 0, tid: 0, stack: None, body: Body::TraceEnd });
    }
    (analysis.finish(facts()), huge)
}

#[test]
fn sums_agree_whatever_the_stream() {
    for seed in 0..150 {
        let (report, huge) = noise(seed);
        for process in &report.processes {
            let ends = process.boundaries.iter().filter(|b| b.kind == BoundaryKind::ProcessExit);
            let ends = ends.chain(process.boundaries.iter().filter(|b| b.kind == BoundaryKind::TraceEnd));
            assert_eq!(ends.count(), 1, "seed {seed}: each process has one end");
        }
        if huge {
            // Sizes that no address space holds: nothing to add up.
            continue;
        }
        check(&report);
        for b in report.processes.iter().filter_map(|p| p.boundaries.last()) {
            let survivors: u64 = b.survivors.iter().map(|s| s.bytes).sum();
            let held = b.after.layers.pool_chunk.unwrap_or(0) + b.after.layers.heap.unwrap_or(0);
            assert_eq!(survivors, held, "seed {seed}: what is held at the end and its rows");
        }
    }
}

#[test]
fn the_same_stream_gives_the_same_report_and_fits_the_page() {
    for seed in 0..30 {
        let (report, _) = noise(seed);
        let json = serde_json::to_string(&report).expect("JSON");
        assert_eq!(json, serde_json::to_string(&noise(seed).0).expect("JSON"), "seed {seed}");
        let text = render(&report, Style::default());
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "seed {seed}: {line}");
        }
    }
}
