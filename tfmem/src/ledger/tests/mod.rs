//! Each rule of the ledger, one by one.
#![allow(clippy::unwrap_used, reason = "a test that finds nothing has failed")]

mod distributed;
mod maps;
mod memory;
mod missed;
mod processes;
mod sessions;

use std::sync::Arc;

use crate::event::{Addr, Body, Call, Event, Mapping, MappingKind, Origin, ProcessInfo, Snapshot};
use crate::ledger::types::Change;
use crate::ledger::{Ledger, Process};

const PID: u32 = 100;
const POOL: Addr = 0xb00;

/// A ledger, a clock that moves by one with each event, and the process events are about unless told otherwise.
struct Trace {
    ledger: Ledger,
    at: u64,
    pid: u32,
    tid: u32,
}

impl Trace {
    fn new() -> Self {
        Self { ledger: Ledger::new(), at: 0, pid: PID, tid: PID }
    }

    fn push(&mut self, body: Body) -> Vec<Change> {
        self.at += 1;
        let mut changes = Vec::new();
        self.ledger.apply(&Event { at: self.at, pid: self.pid, tid: self.tid, stack: None, body }, &mut changes);
        changes
    }

    /// The same on another thread.
    fn on(&mut self, tid: u32) -> &mut Self {
        self.tid = tid;
        self
    }

    fn enter(&mut self, call: Call, args: &[u64]) -> Vec<Change> {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.push(Body::Enter { call, args: all, text: None })
    }

    fn leave(&mut self, call: Call, ret: u64) -> Vec<Change> {
        self.push(Body::Leave { call, ret })
    }

    fn call(&mut self, call: Call, args: &[u64], ret: u64) -> Vec<Change> {
        let mut changes = self.enter(call, args);
        changes.extend(self.leave(call, ret));
        changes
    }

    fn chunk(&mut self, addr: Addr, bytes: u64) {
        self.chunk_of(POOL, addr, bytes);
    }

    fn chunk_of(&mut self, pool: Addr, addr: Addr, bytes: u64) {
        self.push(Body::ChunkAlloc { pool, addr, requested: bytes - 1, bytes, origin: Origin::default() });
    }

    fn chunk_by(&mut self, addr: Addr, op: u64, step: i64) {
        let origin = Origin { op, step, ..Origin::default() };
        self.push(Body::ChunkAlloc { pool: POOL, addr, requested: 8, bytes: 8, origin });
    }

    fn chunk_free(&mut self, addr: Addr) {
        self.push(Body::ChunkFree { pool: POOL, addr });
    }

    fn heap(&mut self, addr: Addr, bytes: u64) {
        self.push(Body::HeapAlloc { addr, bytes, origin: Origin::default() });
    }

    fn heap_free(&mut self, addr: Addr) {
        self.push(Body::HeapFree { addr });
    }

    fn map(&mut self, start: Addr, len: u64) {
        self.push(Body::Map { start, len, prot: 3, flags: 0x22, file: false });
    }

    fn unmap(&mut self, start: Addr, len: u64) {
        self.push(Body::Unmap { start, len });
    }

    fn snapshot(&mut self, mappings: &[(Addr, u64, MappingKind)]) -> Vec<Change> {
        let mappings = mappings
            .iter()
            .map(|&(start, len, kind)| Mapping { start, len, kind, resident_bytes: 0, name: String::new() })
            .collect();
        self.push(Body::Snapshot(Arc::new(Snapshot { mappings, ..Snapshot::default() })))
    }

    fn info(&mut self, info: ProcessInfo) {
        self.push(Body::Process(Arc::new(info)));
    }

    fn process(&self) -> &Process {
        self.ledger.process(self.pid).unwrap()
    }

    fn owner(&self, addr: Addr) -> Option<u64> {
        self.process().chunks().find(|c| c.addr == addr).unwrap().owner
    }
}
