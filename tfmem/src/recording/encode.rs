//! Events → the columns of a frame.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    bytes::{put, put_bytes, put_distance, put_page_distance, put_pages, put_signed},
    dictionary::{Dictionary, Last, Steps, memory},
    format::{Column, MAX_EVENT_BYTES, MAX_PART, RECENT_STEPS, kind},
};
use crate::event::{Body, Call, Event, MappingKind, Origin, Snapshot, StackId};

/// An event that no frame can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Where memory is taken: the same for each step of a training loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Site {
    pool: u64,
    requested: u64,
    bytes: u64,
    label: Label,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Label {
    op: u64,
    region: [u8; 8],
    dtype: i32,
}

/// A frame in the making.
#[derive(Debug, Default)]
pub struct Encoder {
    columns: [Vec<u8>; Column::COUNT],
    events: usize,
    last: Last,
    threads: Dictionary<(u32, u32)>,
    stacks: Dictionary<StackId>,
    addresses: Dictionary<u64>,
    sites: Dictionary<Site>,
    labels: Dictionary<Label>,
    pools: Dictionary<u64>,
    texts: Dictionary<String>,
    steps: Steps,
    /// Arguments and result of each call's last time.
    calls: FxHashMap<(u16, u8), u64>,
}

impl Encoder {
    pub const fn events(&self) -> usize {
        self.events
    }

    /// Bytes so far, before compression.
    pub fn len(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// # Errors
    /// When no frame can hold the event; the frame is as it was.
    pub fn push(&mut self, event: &Event) -> Result<(), TooLarge> {
        let kind = match &event.body {
            Body::ChunkAlloc { pool, addr, requested, bytes, origin } => {
                self.take(*pool, *addr, *requested, *bytes, origin);
                kind::CHUNK_ALLOC
            }
            Body::ChunkFree { pool, addr } => {
                self.pool(*pool);
                self.address(*addr);
                kind::CHUNK_FREE
            }
            Body::HeapAlloc { addr, bytes, origin } => {
                self.take(0, *addr, *bytes, *bytes, origin);
                kind::HEAP_ALLOC
            }
            Body::HeapFree { addr } => {
                self.address(*addr);
                kind::HEAP_FREE
            }
            Body::Enter { call, args, text } => {
                if text.as_ref().is_some_and(|text| text.len() > MAX_PART) {
                    return Err(TooLarge);
                }
                self.enter(*call, args, text.as_ref());
                kind::ENTER
            }
            Body::Leave { call, ret } => {
                put(self.column(Column::Call), u64::from(call.number()));
                self.word(call.number(), RESULT, *ret);
                kind::LEAVE
            }
            Body::ThreadExit => kind::THREAD_EXIT,
            Body::Snapshot(snapshot) => {
                self.snapshot(snapshot)?;
                kind::SNAPSHOT
            }
            other => match self.map(other) {
                Some(kind) => kind,
                None => self.other(other)?,
            },
        };
        self.column(Column::Kind).push(kind | if event.stack.is_some() { kind::WITH_STACK } else { 0 });
        let before = std::mem::replace(&mut self.last.time, event.at);
        put_distance(self.column(Column::Time), before, event.at);
        let (number, new) = self.threads.number(&(event.pid, event.tid));
        put(self.column(Column::Thread), number);
        if new {
            put(self.column(Column::NewThread), u64::from(event.pid));
            put(self.column(Column::NewThread), u64::from(event.tid));
        }
        if let Some(stack) = event.stack {
            let (number, new) = self.stacks.number(&stack);
            put(self.column(Column::Thread), number);
            if new {
                put(self.column(Column::Thread), stack.get());
            }
        }
        self.events += 1;
        Ok(())
    }

    /// Ends the frame: its payload goes to `out`, the next one begins.
    pub fn take_frame(&mut self, out: &mut Vec<u8>) {
        put(out, self.events as u64);
        for column in &self.columns {
            put(out, column.len() as u64);
        }
        for column in &mut self.columns {
            out.append(column);
        }
        self.events = 0;
        self.last = Last::default();
        self.threads.clear();
        self.stacks.clear();
        self.addresses.clear();
        self.sites.clear();
        self.labels.clear();
        self.pools.clear();
        self.texts.clear();
        self.steps.clear();
        self.calls.clear();
    }

    const fn column(&mut self, column: Column) -> &mut Vec<u8> {
        &mut self.columns[column as usize]
    }

    /// An allocation: where, what for, in which step.
    fn take(&mut self, pool: u64, addr: u64, requested: u64, bytes: u64, origin: &Origin) {
        let label = Label { op: origin.op, region: origin.region, dtype: origin.dtype };
        let (number, new) = self.sites.number(&Site { pool, requested, bytes, label });
        put(self.column(Column::Site), number);
        if new {
            let before = std::mem::replace(&mut self.last.site_pool, pool);
            let (number, new) = self.labels.number(&label);
            let out = self.column(Column::NewSite);
            put_distance(out, before, pool);
            put(out, number);
            put(out, requested);
            put_distance(out, requested, bytes);
            if new {
                let out = self.column(Column::NewLabel);
                out.extend_from_slice(&label.op.to_le_bytes());
                out.extend_from_slice(&label.region);
                put_signed(out, i64::from(label.dtype));
            }
        }
        self.address(addr);
        self.step(origin.step);
    }

    fn address(&mut self, addr: u64) {
        let (number, new) = self.addresses.number(&addr);
        put(self.column(Column::Address), number);
        if new {
            let before = std::mem::replace(&mut self.last.address, addr);
            put_distance(self.column(Column::NewAddress), before, addr);
        }
    }

    fn pool(&mut self, pool: u64) {
        let (number, new) = self.pools.number(&pool);
        let out = self.column(Column::Pool);
        put(out, number);
        if new {
            put(out, pool);
        }
    }

    fn step(&mut self, step: i64) {
        if let Some(place) = self.steps.place(step) {
            self.steps.again(place);
            self.column(Column::Step).push(place as u8);
        } else {
            let latest = self.steps.latest();
            let out = self.column(Column::Step);
            out.push(RECENT_STEPS as u8);
            put_signed(out, step.wrapping_sub(latest));
            self.steps.add(step);
        }
    }

    fn enter(&mut self, call: Call, args: &[u64; 6], text: Option<&Arc<str>>) {
        let call = call.number();
        let mut changed = 0u8;
        for (place, &arg) in (0u8..).zip(args) {
            if self.calls.get(&(call, place)).copied().unwrap_or(0) != arg {
                changed |= 1 << place;
            }
        }
        let out = self.column(Column::Call);
        put(out, u64::from(call));
        out.push(changed | if text.is_some() { HAS_TEXT } else { 0 });
        for (place, &arg) in (0u8..).zip(args) {
            if changed & 1 << place != 0 {
                self.word(call, place, arg);
            }
        }
        if let Some(text) = text {
            let number = self.text(text);
            put(self.column(Column::Call), number);
        }
    }

    fn word(&mut self, call: u16, place: u8, word: u64) {
        let before = self.calls.insert((call, place), word).unwrap_or(0);
        put_distance(self.column(Column::Call), before, word);
    }

    fn text(&mut self, text: &str) -> u64 {
        let (number, new) = self.texts.number(text);
        if new {
            put_bytes(self.column(Column::Text), text.as_bytes());
        }
        number
    }

    /// mmap and its kin; `None`: the body is something else.
    fn map(&mut self, body: &Body) -> Option<u8> {
        let last = &mut self.last;
        let out = &mut self.columns[Column::Map as usize];
        let place = |out: &mut Vec<u8>, last: &mut u64, start| {
            let before = std::mem::replace(last, start);
            put_page_distance(out, before, start);
        };
        Some(match *body {
            Body::Map { start, len, prot, flags, file } => {
                place(out, &mut last.map, start);
                put_pages(out, len);
                put(out, u64::from(prot));
                put(out, u64::from(flags) << 1 | u64::from(file));
                kind::MAP
            }
            Body::Unmap { start, len } => {
                place(out, &mut last.map, start);
                put_pages(out, len);
                kind::UNMAP
            }
            Body::Remap { old_start, old_len, start, len, keep_old, took } => {
                place(out, &mut last.map, old_start);
                put_pages(out, old_len);
                place(out, &mut last.map, start);
                put_pages(out, len);
                put(out, u64::from(took) << 1 | u64::from(keep_old));
                kind::REMAP
            }
            Body::Brk { end } => {
                place(out, &mut last.brk, end);
                kind::BRK
            }
            Body::Advise { start, len, advice } => {
                place(out, &mut last.map, start);
                put_pages(out, len);
                put_signed(out, i64::from(advice));
                kind::ADVISE
            }
            _ => return None,
        })
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), TooLarge> {
        // Naming every field: one that is added must be put here too, and raises the version.
        let Snapshot { rss_anon, rss_file, rss_shmem, mappings, resident, at_exit } = snapshot;
        let most: usize = mappings.iter().map(|mapping| MAPPING_MOST + mapping.name.len()).sum();
        let mut ranges = Vec::new();
        let mut end = 0;
        for &(start, len) in resident.iter().flatten() {
            put_pages(&mut ranges, start.wrapping_sub(end));
            put_pages(&mut ranges, len);
            end = start.wrapping_add(len);
        }
        if most > 2 * MAX_PART || ranges.len() > MAX_PART || memory(snapshot) > MAX_EVENT_BYTES {
            return Err(TooLarge);
        }
        let before = std::mem::replace(&mut self.last.rss, [*rss_anon, *rss_file, *rss_shmem]);
        let out = self.column(Column::Seen);
        out.push(u8::from(*at_exit) | u8::from(resident.is_some()) << 1);
        for (from, to) in before.into_iter().zip([*rss_anon, *rss_file, *rss_shmem]) {
            put_page_distance(out, from, to);
        }
        put(out, mappings.len() as u64);
        let mut end = 0;
        for mapping in mappings {
            let name = self.text(&mapping.name);
            let out = self.column(Column::Seen);
            out.push(mapping_kind(mapping.kind));
            put_pages(out, mapping.start.wrapping_sub(end));
            put_pages(out, mapping.len);
            put_pages(out, mapping.resident_bytes);
            put(out, name);
            end = mapping.start.wrapping_add(mapping.len);
        }
        if let Some(resident) = resident {
            let out = self.column(Column::Seen);
            put(out, resident.len() as u64);
            out.append(&mut ranges);
        }
        Ok(())
    }

    fn other(&mut self, body: &Body) -> Result<u8, TooLarge> {
        // A body holds nothing that JSON cannot say.
        let json = serde_json::to_vec(body).map_err(|_| TooLarge)?;
        if json.len() > MAX_PART {
            return Err(TooLarge);
        }
        put_bytes(self.column(Column::Other), &json);
        Ok(kind::OTHER)
    }
}

/// Bit of a call's mask of changed arguments.
pub(super) const HAS_TEXT: u8 = 1 << 6;
/// Place of the result among a call's words.
pub(super) const RESULT: u8 = 6;
/// A mapping without its name takes at most this.
const MAPPING_MOST: usize = 1 + 3 * 10 + 5;

const fn mapping_kind(kind: MappingKind) -> u8 {
    match kind {
        MappingKind::Anonymous => 0,
        MappingKind::Heap => 1,
        MappingKind::Stack => 2,
        MappingKind::File => 3,
        MappingKind::Shared => 4,
        MappingKind::Kernel => 5,
    }
}
