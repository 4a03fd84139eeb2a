//! The ledger against naive models: long random streams of events, each model written for clearness alone.
//!
//! `TFMEM_LONG=1` tries twenty times as many streams. `TFMEM_SEED` repeats one stream.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that finds nothing has failed")]

mod blocks;
mod lost;
mod maps;
mod program;
mod sessions;

use tfmem::event::{Body, Event};
use tfmem::ledger::Ledger;
use tfmem::ledger::types::Change;

/// Seeds to try, and events for each.
fn streams(events: u64) -> impl Iterator<Item = (Rng, u64)> {
    let long = std::env::var_os("TFMEM_LONG").is_some_and(|v| v == "1");
    let seeds = match std::env::var("TFMEM_SEED") {
        Ok(seed) => seed.parse().map(|s: u64| s..s + 1).unwrap(),
        Err(_) if long => 1..161,
        Err(_) => 1..9,
    };
    seeds.map(move |seed| (Rng::new(seed), events / 8))
}

/// splitmix64: the same stream for the same seed, everywhere.
struct Rng {
    seed: u64,
    state: u64,
}

impl Rng {
    fn new(seed: u64) -> Self {
        Self { seed, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

fn apply(ledger: &mut Ledger, at: u64, pid: u32, tid: u32, body: Body) -> Vec<Change> {
    let mut changes = Vec::new();
    ledger.apply(&Event { at, pid, tid, stack: None, body }, &mut changes);
    changes
}
