//! The columns of a frame → events, one at a time.
//!
//! The bytes may be anybody's: what does not fit is [`Malformed`], and no length is believed before its bytes are
//! there.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    bytes::{Cursor, Malformed},
    dictionary::{Last, RANGE_MEMORY, Steps, mapping_memory},
    encode::{HAS_TEXT, RESULT},
    format::{Column, MAX_EVENT_BYTES, MAX_EVENTS, MAX_PART, RECENT_STEPS, kind},
};
use crate::event::{Addr, Body, Call, Event, Mapping, MappingKind, Origin, Snapshot, StackId};

/// A frame being read.
#[derive(Debug)]
pub struct Decoder {
    raw: Vec<u8>,
    left: usize,
    columns: [Cursor; Column::COUNT],
    last: Last,
    threads: Vec<(u32, u32)>,
    stacks: Vec<StackId>,
    addresses: Vec<Addr>,
    sites: Vec<Site>,
    /// Origins without their step.
    labels: Vec<Origin>,
    pools: Vec<Addr>,
    texts: Vec<Arc<str>>,
    text_bytes: usize,
    steps: Steps,
    calls: FxHashMap<(u16, u8), u64>,
}

#[derive(Clone, Copy, Debug)]
struct Site {
    pool: u64,
    requested: u64,
    bytes: u64,
    origin: Origin,
}

impl Decoder {
    /// # Errors
    /// When the columns do not fill the payload exactly.
    pub fn new(raw: Vec<u8>) -> Result<Self, Malformed> {
        let mut head = Cursor { at: 0, end: raw.len() };
        let left = usize::try_from(head.number(&raw)?).ok().filter(|&n| n <= MAX_EVENTS).ok_or(Malformed)?;
        let mut columns = [Cursor::default(); Column::COUNT];
        for column in &mut columns {
            column.end = usize::try_from(head.number(&raw)?).map_err(|_| Malformed)?;
        }
        let mut at = head.at;
        for column in &mut columns {
            let end = at.checked_add(column.end).filter(|&end| end <= raw.len()).ok_or(Malformed)?;
            *column = Cursor { at, end };
            at = end;
        }
        if at != raw.len() {
            return Err(Malformed);
        }
        Ok(Self {
            raw,
            left,
            columns,
            last: Last::default(),
            threads: Vec::new(),
            stacks: Vec::new(),
            addresses: Vec::new(),
            sites: Vec::new(),
            labels: Vec::new(),
            pools: Vec::new(),
            texts: Vec::new(),
            text_bytes: 0,
            steps: Steps::default(),
            calls: FxHashMap::default(),
        })
    }

    /// Events that are still to come.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// The next event; `None` in its place when it is of a kind that this tfmem does not know.
    ///
    /// # Errors
    /// When the columns hold something no writer wrote. Nothing more can be read of the frame.
    pub fn event(&mut self) -> Result<Option<Event>, Malformed> {
        self.left = self.left.checked_sub(1).ok_or(Malformed)?;
        let kind = self.byte(Column::Kind)?;
        let before = self.last.time;
        let at = self.read(Column::Time, |column, raw| column.distance(raw, before))?;
        self.last.time = at;
        let (pid, tid) = self.thread()?;
        let stack = if kind & kind::WITH_STACK == 0 { None } else { Some(self.stack()?) };
        Ok(self.body(kind & !kind::WITH_STACK)?.map(|body| Event { at, pid, tid, stack, body }))
    }

    fn stack(&mut self) -> Result<StackId, Malformed> {
        let number = self.number(Column::Thread)?;
        if number < self.stacks.len() as u64 {
            return self.stacks.get(number as usize).copied().ok_or(Malformed);
        }
        let stack = self.number(Column::Thread)?;
        let stack = StackId::new(stack).filter(|_| number == self.stacks.len() as u64).ok_or(Malformed)?;
        self.stacks.push(stack);
        Ok(stack)
    }

    fn body(&mut self, kind: u8) -> Result<Option<Body>, Malformed> {
        Ok(Some(match kind {
            kind::CHUNK_ALLOC => {
                let (site, addr, origin) = self.taken()?;
                Body::ChunkAlloc { pool: site.pool, addr, requested: site.requested, bytes: site.bytes, origin }
            }
            kind::CHUNK_FREE => Body::ChunkFree { pool: self.pool()?, addr: self.address()? },
            kind::HEAP_ALLOC => {
                let (site, addr, origin) = self.taken()?;
                Body::HeapAlloc { addr, bytes: site.bytes, origin }
            }
            kind::HEAP_FREE => Body::HeapFree { addr: self.address()? },
            kind::MAP => {
                let (start, len) = (self.place()?, self.pages()?);
                let prot = self.read(Column::Map, Cursor::small)?;
                let flags = self.number(Column::Map)?;
                let file = flags & 1 == 1;
                Body::Map { start, len, prot, flags: u32::try_from(flags >> 1).map_err(|_| Malformed)?, file }
            }
            kind::UNMAP => Body::Unmap { start: self.place()?, len: self.pages()? },
            kind::REMAP => {
                let (old_start, old_len) = (self.place()?, self.pages()?);
                let (start, len) = (self.place()?, self.pages()?);
                let last = self.number(Column::Map)?;
                let took = u32::try_from(last >> 1).map_err(|_| Malformed)?;
                Body::Remap { old_start, old_len, start, len, keep_old: last & 1 == 1, took }
            }
            kind::BRK => {
                let before = self.last.brk;
                self.last.brk = self.read(Column::Map, |column, raw| column.page_distance(raw, before))?;
                Body::Brk { end: self.last.brk }
            }
            kind::ADVISE => Body::Advise {
                start: self.place()?,
                len: self.pages()?,
                advice: self.read(Column::Map, Cursor::small_signed)?,
            },
            kind::ENTER => return self.enter(),
            kind::LEAVE => {
                let call = self.call()?;
                let ret = self.word(call, RESULT)?;
                return Ok(Call::from_number(call).map(|call| Body::Leave { call, ret }));
            }
            kind::THREAD_EXIT => Body::ThreadExit,
            kind::SNAPSHOT => Body::Snapshot(Arc::new(self.snapshot()?)),
            kind::OTHER => {
                let json = self.columns[Column::Other as usize].bytes(&self.raw)?;
                if json.len() > MAX_PART {
                    return Err(Malformed);
                }
                // What cannot be understood here was sound when it was written (the frame's sum says so): it is newer.
                return Ok(serde_json::from_slice(json).ok());
            }
            _ => return Err(Malformed),
        }))
    }

    fn read<T>(
        &mut self,
        column: Column,
        f: impl FnOnce(&mut Cursor, &[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        f(&mut self.columns[column as usize], &self.raw)
    }

    fn number(&mut self, column: Column) -> Result<u64, Malformed> {
        self.read(column, Cursor::number)
    }

    fn index(&mut self, column: Column) -> Result<usize, Malformed> {
        usize::try_from(self.number(column)?).map_err(|_| Malformed)
    }

    fn byte(&mut self, column: Column) -> Result<u8, Malformed> {
        self.read(column, Cursor::byte)
    }

    fn thread(&mut self) -> Result<(u32, u32), Malformed> {
        let number = self.index(Column::Thread)?;
        if number == self.threads.len() {
            let pid = self.read(Column::NewThread, Cursor::small)?;
            let tid = self.read(Column::NewThread, Cursor::small)?;
            self.threads.push((pid, tid));
        }
        self.threads.get(number).copied().ok_or(Malformed)
    }

    fn address(&mut self) -> Result<Addr, Malformed> {
        let number = self.index(Column::Address)?;
        if number == self.addresses.len() {
            let before = self.last.address;
            let address = self.read(Column::NewAddress, |column, raw| column.distance(raw, before))?;
            self.last.address = address;
            self.addresses.push(address);
        }
        self.addresses.get(number).copied().ok_or(Malformed)
    }

    fn pool(&mut self) -> Result<Addr, Malformed> {
        let number = self.index(Column::Pool)?;
        if number == self.pools.len() {
            let pool = self.number(Column::Pool)?;
            self.pools.push(pool);
        }
        self.pools.get(number).copied().ok_or(Malformed)
    }

    fn taken(&mut self) -> Result<(Site, Addr, Origin), Malformed> {
        let number = self.index(Column::Site)?;
        if number == self.sites.len() {
            let site = self.new_site()?;
            self.sites.push(site);
        }
        let site = *self.sites.get(number).ok_or(Malformed)?;
        let addr = self.address()?;
        let origin = Origin { step: self.step()?, ..site.origin };
        Ok((site, addr, origin))
    }

    fn new_site(&mut self) -> Result<Site, Malformed> {
        let before = self.last.site_pool;
        let pool = self.read(Column::NewSite, |column, raw| column.distance(raw, before))?;
        self.last.site_pool = pool;
        let label = self.index(Column::NewSite)?;
        let requested = self.number(Column::NewSite)?;
        let bytes = self.read(Column::NewSite, |column, raw| column.distance(raw, requested))?;
        if label == self.labels.len() {
            let label = self.read(Column::NewLabel, |column, raw| {
                let op = column.take(raw, 8)?.try_into().map_err(|_| Malformed)?;
                let region = column.take(raw, 8)?.try_into().map_err(|_| Malformed)?;
                Ok(Origin { op: u64::from_le_bytes(op), region, dtype: column.small_signed(raw)?, step: 0 })
            })?;
            self.labels.push(label);
        }
        let origin = *self.labels.get(label).ok_or(Malformed)?;
        Ok(Site { pool, requested, bytes, origin })
    }

    fn step(&mut self) -> Result<i64, Malformed> {
        let place = usize::from(self.byte(Column::Step)?);
        if place < RECENT_STEPS {
            return self.steps.again(place).ok_or(Malformed);
        }
        let distance = self.read(Column::Step, Cursor::signed)?;
        let step = self.steps.latest().wrapping_add(distance);
        self.steps.add(step);
        Ok(step)
    }

    /// A text by its number in the column where it is used.
    fn text(&mut self, column: Column) -> Result<Arc<str>, Malformed> {
        let number = self.index(column)?;
        if number == self.texts.len() {
            let bytes = self.columns[Column::Text as usize].bytes(&self.raw)?;
            let text: Arc<str> = std::str::from_utf8(bytes).map_err(|_| Malformed)?.into();
            self.text_bytes += text.len() + 4 * size_of::<usize>();
            if self.text_bytes > MAX_EVENT_BYTES {
                return Err(Malformed);
            }
            self.texts.push(text);
        }
        self.texts.get(number).cloned().ok_or(Malformed)
    }

    fn call(&mut self) -> Result<u16, Malformed> {
        u16::try_from(self.number(Column::Call)?).map_err(|_| Malformed)
    }

    fn word(&mut self, call: u16, place: u8) -> Result<u64, Malformed> {
        let before = self.calls.get(&(call, place)).copied().unwrap_or(0);
        let word = self.read(Column::Call, |column, raw| column.distance(raw, before))?;
        self.calls.insert((call, place), word);
        Ok(word)
    }

    fn enter(&mut self) -> Result<Option<Body>, Malformed> {
        let call = self.call()?;
        let changed = self.byte(Column::Call)?;
        let mut args = [0; 6];
        for (place, arg) in (0u8..).zip(&mut args) {
            *arg = if changed & 1 << place == 0 {
                self.calls.get(&(call, place)).copied().unwrap_or(0)
            } else {
                self.word(call, place)?
            };
        }
        let text = if changed & HAS_TEXT == 0 { None } else { Some(self.text(Column::Call)?) };
        Ok(Call::from_number(call).map(|call| Body::Enter { call, args, text }))
    }

    /// The start of a range that mmap and its kin were called for.
    fn place(&mut self) -> Result<Addr, Malformed> {
        let before = self.last.map;
        self.last.map = self.read(Column::Map, |column, raw| column.page_distance(raw, before))?;
        Ok(self.last.map)
    }

    fn pages(&mut self) -> Result<u64, Malformed> {
        self.read(Column::Map, Cursor::pages)
    }

    fn snapshot(&mut self) -> Result<Snapshot, Malformed> {
        let flags = self.byte(Column::Seen)?;
        let mut rss = self.last.rss;
        for bytes in &mut rss {
            let before = *bytes;
            *bytes = self.read(Column::Seen, |column, raw| column.page_distance(raw, before))?;
        }
        self.last.rss = rss;
        let [rss_anon, rss_file, rss_shmem] = rss;
        let mut memory = 0;
        let mappings = self.mappings(&mut memory)?;
        let resident = if flags & 2 == 0 { None } else { Some(self.resident(memory)?) };
        Ok(Snapshot { rss_anon, rss_file, rss_shmem, mappings, resident, at_exit: flags & 1 == 1 })
    }

    fn mappings(&mut self, memory: &mut usize) -> Result<Vec<Mapping>, Malformed> {
        let count = self.number(Column::Seen)?;
        let mut mappings = Vec::new();
        let mut end = 0u64;
        for _ in 0..count {
            let kind = mapping_kind(self.byte(Column::Seen)?)?;
            let start = end.wrapping_add(self.read(Column::Seen, Cursor::pages)?);
            let len = self.read(Column::Seen, Cursor::pages)?;
            let resident_bytes = self.read(Column::Seen, Cursor::pages)?;
            let name = self.text(Column::Seen)?;
            // A long name may be told with one byte, again and again.
            *memory += mapping_memory(name.len());
            if *memory > MAX_EVENT_BYTES {
                return Err(Malformed);
            }
            end = start.wrapping_add(len);
            mappings.push(Mapping { start, len, kind, resident_bytes, name: name.to_string() });
        }
        Ok(mappings)
    }

    fn resident(&mut self, mut memory: usize) -> Result<Vec<(Addr, u64)>, Malformed> {
        let count = self.number(Column::Seen)?;
        let mut ranges = Vec::new();
        let mut end = 0u64;
        for _ in 0..count {
            let start = end.wrapping_add(self.read(Column::Seen, Cursor::pages)?);
            let len = self.read(Column::Seen, Cursor::pages)?;
            memory += RANGE_MEMORY;
            if memory > MAX_EVENT_BYTES {
                return Err(Malformed);
            }
            end = start.wrapping_add(len);
            ranges.push((start, len));
        }
        Ok(ranges)
    }
}

const fn mapping_kind(number: u8) -> Result<MappingKind, Malformed> {
    Ok(match number {
        0 => MappingKind::Anonymous,
        1 => MappingKind::Heap,
        2 => MappingKind::Stack,
        3 => MappingKind::File,
        4 => MappingKind::Shared,
        5 => MappingKind::Kernel,
        _ => return Err(Malformed),
    })
}
