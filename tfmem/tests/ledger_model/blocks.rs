//! Chunks, heap blocks and pools: plain lists, searched from one end to the other.

use tfmem::event::{Body, Call, Origin};
use tfmem::ledger::types::{Allocation, Anomalies, BlockLayer, Totals};
use tfmem::ledger::{Ledger, Process};

use crate::{Rng, apply, streams};

const POOLS: [u64; 3] = [0xb00, 0xb10, 0xb20];

struct Pool {
    addr: u64,
    seeded: bool,
    peak: u64,
    handed_out: u64,
    extended: u64,
}

#[derive(Default)]
struct Thread {
    tid: u32,
    extending: Option<u64>,
    made: Vec<u64>,
    last_freed: u64,
}

#[derive(Default)]
struct Model {
    blocks: Vec<Allocation>,
    pools: Vec<Pool>,
    threads: Vec<Thread>,
    forked: bool,
    anomalies: Anomalies,
    alive: bool,
}

impl Model {
    fn new(pid: u32, forked: bool) -> Self {
        let threads = (0..3).map(|i| Thread { tid: pid + i, ..Thread::default() }).collect();
        Self { threads, forked, alive: true, ..Self::default() }
    }

    fn find(&self, layer: BlockLayer, addr: u64) -> Option<usize> {
        self.blocks.iter().position(|b| b.layer == layer && b.addr == addr)
    }

    fn pool(&mut self, addr: u64) -> &mut Pool {
        if !self.pools.iter().any(|p| p.addr == addr) {
            self.pools.push(Pool { addr, seeded: true, peak: 0, handed_out: 0, extended: 0 });
        }
        self.pools.iter_mut().find(|p| p.addr == addr).unwrap()
    }

    fn chunks_of(&self, pool: u64) -> impl Iterator<Item = &Allocation> {
        self.blocks.iter().filter(move |b| b.layer == BlockLayer::Chunk && b.pool == Some(pool))
    }

    fn alloc(&mut self, block: Allocation) {
        if let Some(old) = self.find(block.layer, block.addr) {
            self.anomalies.reused_alive += 1;
            self.take(old);
        }
        self.blocks.push(block);
        if let (BlockLayer::Chunk, Some(pool)) = (block.layer, block.pool) {
            self.pool(pool).handed_out += 1;
            let in_use = self.chunks_of(pool).map(|b| b.bytes).sum();
            let pool = self.pool(pool);
            pool.peak = pool.peak.max(in_use);
        } else if let Some(pool) = block.pool {
            self.pool(pool).extended += 1;
        }
    }

    /// A block goes; with a region go the chunks in it.
    fn take(&mut self, i: usize) {
        let gone = self.blocks.remove(i);
        if let (BlockLayer::Heap, Some(pool)) = (gone.layer, gone.pool) {
            self.drop_chunks(pool, gone.addr, gone.addr + gone.bytes);
        }
    }

    fn drop_chunks(&mut self, pool: u64, from: u64, to: u64) {
        let before = self.blocks.len();
        self.blocks.retain(|b| b.layer == BlockLayer::Heap || b.pool != Some(pool) || b.addr < from || b.addr >= to);
        self.anomalies.orphaned_chunks += (before - self.blocks.len()) as u64;
    }

    fn unknown_free(&mut self, expected: bool) {
        let a = &mut self.anomalies;
        *(if self.forked {
            &mut a.inherited_frees
        } else if expected {
            &mut a.expected_frees
        } else {
            &mut a.unpaired_frees
        }) += 1;
    }

    fn chunk_free(&mut self, pool: u64, addr: u64) {
        match self.find(BlockLayer::Chunk, addr) {
            Some(i) => self.take(i),
            None => {
                let seeded = self.pool(pool).seeded;
                self.unknown_free(seeded);
            }
        }
    }

    fn heap_free(&mut self, thread: usize, addr: u64) {
        let twice = self.threads[thread].last_freed == addr;
        self.threads[thread].last_freed = addr;
        match self.find(BlockLayer::Heap, addr) {
            Some(i) => self.take(i),
            None if twice => self.threads[thread].last_freed = 0,
            None => self.unknown_free(false),
        }
    }

    fn pool_gone(&mut self, addr: u64) {
        self.pools.retain(|p| p.addr != addr);
        for block in self.blocks.iter_mut().filter(|b| b.layer == BlockLayer::Heap && b.pool == Some(addr)) {
            block.pool = None;
        }
        self.drop_chunks(addr, 0, u64::MAX);
    }

    fn pool_new(&mut self, addr: u64) {
        if let Some(known) = self.pools.iter().find(|p| p.addr == addr)
            && (known.seeded || known.handed_out > 0 || known.extended > 0)
        {
            self.anomalies.reused_alive += 1;
            self.pool_gone(addr);
        }
        self.pools.retain(|p| p.addr != addr);
        self.pools.push(Pool { addr, seeded: false, peak: 0, handed_out: 0, extended: 0 });
    }

    fn extend_ends(&mut self, thread: usize, worked: bool) {
        let made = std::mem::take(&mut self.threads[thread].made);
        let pool = self.threads[thread].extending.take();
        if worked {
            return;
        }
        for addr in made {
            if let Some(i) = self.find(BlockLayer::Heap, addr)
                && self.blocks[i].pool == pool
            {
                self.blocks[i].pool = None;
                let pool = self.pool(pool.unwrap());
                pool.extended = pool.extended.saturating_sub(1);
            }
        }
    }

    fn totals(&self) -> Totals {
        let mut t = Totals::default();
        for block in &self.blocks {
            let (count, bytes) = match (block.layer, block.pool) {
                (BlockLayer::Chunk, _) => (&mut t.chunks, &mut t.chunk_bytes),
                (BlockLayer::Heap, Some(_)) => (&mut t.regions, &mut t.region_bytes),
                (BlockLayer::Heap, None) => (&mut t.heap_blocks, &mut t.heap_bytes),
                // These programs have no GPU.
                (BlockLayer::Device | BlockLayer::Pinned | BlockLayer::Managed, _) => continue,
            };
            *count += 1;
            *bytes += block.bytes;
        }
        t
    }

    fn largest_free(&self, pool: u64) -> u64 {
        let regions = self.blocks.iter().filter(|b| b.layer == BlockLayer::Heap && b.pool == Some(pool));
        regions
            .map(|region| {
                // Byte for byte.
                let (mut run, mut longest) = (0_u64, 0_u64);
                for byte in region.addr..region.addr + region.bytes {
                    let used = self.chunks_of(pool).any(|c| {
                        // A chunk belongs to the region it begins in.
                        c.addr >= region.addr && c.addr <= byte && byte < c.addr + c.bytes
                    });
                    run = if used { 0 } else { run + 1 };
                    longest = longest.max(run);
                }
                longest
            })
            .max()
            .unwrap_or(0)
    }

    fn check(&self, process: &Process, deep: bool) {
        assert_eq!(process.totals(), self.totals());
        assert_eq!(process.anomalies, self.anomalies);
        if !deep {
            return;
        }
        let order = |b: &Allocation| (b.layer, b.addr);
        let mut known: Vec<Allocation> = process.allocations().collect();
        let mut wanted = self.blocks.clone();
        known.sort_by_key(order);
        wanted.sort_by_key(order);
        assert_eq!(known, wanted);
        assert_eq!(process.pools.len(), self.pools.len());
        for pool in &self.pools {
            let known = &process.pools[&pool.addr];
            assert_eq!((known.seeded, known.peak_in_use), (pool.seeded, pool.peak));
            assert_eq!((known.handed_out, known.extended), (pool.handed_out, pool.extended));
            assert_eq!(known.chunks, self.chunks_of(pool.addr).count() as u64);
            assert_eq!(known.in_use, self.chunks_of(pool.addr).map(|b| b.bytes).sum::<u64>());
            let mut regions: Vec<_> = self
                .blocks
                .iter()
                .filter(|b| b.layer == BlockLayer::Heap && b.pool == Some(pool.addr))
                .map(|b| (b.addr, b.bytes, b.born))
                .collect();
            regions.sort_unstable();
            assert_eq!(known.regions.iter().map(|r| (r.start, r.bytes, r.born)).collect::<Vec<_>>(), regions);
            assert_eq!(process.largest_free(pool.addr), self.largest_free(pool.addr));
        }
    }
}

fn origin(rng: &mut Rng) -> Origin {
    Origin {
        op: rng.below(4),
        step: rng.below(3).cast_signed() - 1,
        region: *rng.pick(&[[0; 8], *b"output\0\0", *b"temp\0\0\0\0"]),
        dtype: i32::try_from(rng.below(3)).unwrap(),
    }
}

#[test]
fn blocks_are_what_plain_lists_say() {
    for (mut rng, events) in streams(240_000) {
        println!("seed {}", rng.seed);
        let mut ledger = Ledger::new();
        let pids = [1000, 2000, 3000];
        let mut models: Vec<Model> = pids.iter().map(|&pid| Model::new(pid, false)).collect();
        models[1].alive = false;
        models[2].alive = false;
        for at in 1..=events {
            let alive: Vec<usize> = (0..3).filter(|&i| models[i].alive).collect();
            let i = *rng.pick(&alive);
            let pid = pids[i];
            let (t, model) = (usize::try_from(rng.below(3)).unwrap(), &mut models[i]);
            let (tid, extending) = (model.threads[t].tid, model.threads[t].extending);
            let pool = *rng.pick(&POOLS);
            let addr = 16 * (1 + rng.below(60));
            let enter = |call, arg| Body::Enter { call, args: [arg, 0, 0, 0, 0, 0], text: None };
            let mut body = None;
            match rng.below(64) {
                // No chunk is handed out by a thread that is making a region for its pool.
                0..=13 if extending != Some(pool) => {
                    let (bytes, origin) = (8 + rng.below(40), origin(&mut rng));
                    let requested = rng.below(bytes);
                    let layer = BlockLayer::Chunk;
                    let born = at;
                    let block = Allocation {
                        layer,
                        addr,
                        bytes,
                        requested,
                        born,
                        tid,
                        owner: None,
                        origin,
                        pool: Some(pool),
                        stack: None,
                        launch: None,
                    };
                    model.alloc(block);
                    body = Some(Body::ChunkAlloc { pool, addr, requested, bytes, origin });
                }
                14..=24 => {
                    model.chunk_free(pool, addr);
                    body = Some(Body::ChunkFree { pool, addr });
                }
                25..=38 => {
                    let (bytes, origin) = (8 + rng.below(80), origin(&mut rng));
                    let layer = BlockLayer::Heap;
                    let (requested, born) = (bytes, at);
                    let pool = extending;
                    model.alloc(Allocation {
                        layer,
                        addr,
                        bytes,
                        requested,
                        born,
                        tid,
                        owner: None,
                        origin,
                        pool,
                        stack: None,
                        launch: None,
                    });
                    model.threads[t].last_freed = 0;
                    if extending.is_some() {
                        model.threads[t].made.push(addr);
                    }
                    body = Some(Body::HeapAlloc { addr, bytes, origin });
                }
                39..=52 => {
                    let last = model.threads[t].last_freed;
                    let addr = if rng.one_in(3) && last != 0 { last } else { addr };
                    model.heap_free(t, addr);
                    body = Some(Body::HeapFree { addr });
                }
                53..=57 => match extending {
                    None => {
                        model.threads[t].extending = Some(pool);
                        body = Some(enter(Call::PoolExtend, pool));
                    }
                    Some(_) => {
                        let worked = !rng.one_in(3);
                        model.extend_ends(t, worked);
                        body = Some(Body::Leave { call: Call::PoolExtend, ret: u64::from(worked) });
                    }
                },
                58 => {
                    model.pool_new(pool);
                    body = Some(enter(Call::PoolNew, pool));
                }
                59 if rng.one_in(2) => {
                    model.pool_gone(pool);
                    body = Some(enter(Call::PoolDestroy, pool));
                }
                60 => {
                    model.anomalies.unpaired_calls += u64::from(extending.is_some());
                    model.threads[t] = Thread { tid, ..Thread::default() };
                    body = Some(Body::ThreadExit);
                }
                61 if rng.one_in(2) => {
                    if let Some(child) = (0..3).find(|&c| !models[c].alive) {
                        models[child] = Model::new(pids[child], true);
                        body = Some(Body::Fork { child: pids[child], shares_memory: false });
                    }
                }
                62 if rng.one_in(8) => {
                    let anomalies = model.anomalies;
                    *model = Model { anomalies, ..Model::new(pid, false) };
                    body = Some(Body::Exec);
                }
                63 if rng.one_in(4) && alive.len() > 1 => {
                    model.alive = false;
                    body = Some(Body::Ended { status: None });
                }
                _ => {}
            }
            let Some(body) = body else { continue };
            apply(&mut ledger, at, pid, tid, body);
            models[i].check(ledger.process(pid).unwrap(), rng.one_in(64));
        }
    }
}
