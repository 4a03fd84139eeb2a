//! The layout of a recording, in one place.
//!
//! ```text
//! file    = magic "tfmemrec" · version u32 · frame(head) · frame(events)* · frame(tail)?
//! frame   = kind u8 · codec u8 · 0 u16 · sequence u32 · stored u32 · raw u32 · crc(the 16 bytes before) u32
//!           · crc(payload) u32 · payload (`stored` bytes)
//! head    = JSON: which tfmem, the machine, what it allowed, the options, the wall clock     (codec 0: as it is)
//! tail    = JSON: the same facts as they were at the end, the cost, what was lost            (codec 0)
//! events  = number of events · lengths of the columns · the columns one behind the other     (codec 1: zstd)
//! ```
//!
//! Numbers of the file and of frames are little endian; inside `events` they are LEB128 varints, signed ones zigzag.
//! Frames are numbered from 0 without a gap. A frame is written at least every half second, so a tracer that is killed
//! loses less than a second. No tail: the recording was cut short.
//!
//! **Events are columns**, not records: all kinds of a frame's events, then all times, then all threads … ([`Column`]).
//! Times are distances from the event before. Threads, addresses, allocation sites and texts are numbers in
//! dictionaries that fill up as the frame goes on: a number that equals the dictionary's size is a new entry, which the
//! column behind it spells out. A training step that looks like the one before is then a repetition that zstd finds.
//! Nothing is carried over from one frame to the next: each can be read alone.
//!
//! **Kinds of events** ([`kind`]) that come often have a number and columns of their own. All others are
//! [`kind::OTHER`]: JSON, which names its fields, so that a variant or field added to [`crate::event::Body`] needs
//! nothing here and a tfmem that does not know it skips and counts it. Numbers are never used again; what changes the
//! meaning of a column raises [`VERSION`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    report::model::{Cost, Host},
    retention::{Facts, Options, WallClock},
};

pub const MAGIC: [u8; 8] = *b"tfmemrec";
pub const VERSION: u32 = 1;

/// Bytes of the magic and the version.
pub const START: usize = 12;
pub const FRAME_HEADER: usize = 24;

/// The most that a frame may hold: a reader takes no more memory than this for one, whatever a file declares.
pub const MAX_RAW: usize = 64 << 20;
pub const MAX_EVENTS: usize = 1 << 16;
/// The most memory one decoded event, or the texts of a frame, may take (a snapshot of a very large process).
pub const MAX_EVENT_BYTES: usize = 128 << 20;
/// The most that one text or one list of an event may take in a frame.
pub const MAX_PART: usize = MAX_RAW / 4;

pub mod frame {
    pub const HEAD: u8 = 1;
    pub const EVENTS: u8 = 2;
    pub const TAIL: u8 = 3;
}

pub mod codec {
    pub const PLAIN: u8 = 0;
    pub const ZSTD: u8 = 1;
}

/// Kinds of events.
pub mod kind {
    pub const CHUNK_ALLOC: u8 = 1;
    pub const CHUNK_FREE: u8 = 2;
    pub const HEAP_ALLOC: u8 = 3;
    pub const HEAP_FREE: u8 = 4;
    pub const MAP: u8 = 5;
    pub const UNMAP: u8 = 6;
    pub const REMAP: u8 = 7;
    pub const BRK: u8 = 8;
    pub const ADVISE: u8 = 9;
    pub const ENTER: u8 = 10;
    pub const LEAVE: u8 = 11;
    pub const THREAD_EXIT: u8 = 12;
    pub const SNAPSHOT: u8 = 13;
    /// JSON, in [`super::Column::Other`]
    pub const OTHER: u8 = 14;
    /// Bit of a kind: the event has a stack, whose number follows that of the thread.
    pub const WITH_STACK: u8 = 0x80;
}

/// Columns of an events frame, in the order in which they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// One byte for each event: [`kind`]
    Kind,
    /// ns since the event before (signed: late events are kept where they came), first: the time itself
    Time,
    /// Number of the thread; of an event with a stack also the number of the stack, a new one followed by its id
    Thread,
    /// pid, tid
    NewThread,
    /// Number of the chunk's or block's address
    Address,
    /// Distance from the new address before
    NewAddress,
    /// Number of the allocation site
    Site,
    /// Pool (distance from the site before), number of the label, requested bytes, what is granted above that
    NewSite,
    /// Op, region, dtype
    NewLabel,
    /// Place of the step among the latest ones; [`RECENT_STEPS`]: a new one follows, as a distance from the latest
    Step,
    /// Number of the pool of a free; a new one is followed by its address
    Pool,
    /// Arguments of mmap and its kin
    Map,
    /// Number of the call, then its arguments as distances from those of the call's last time
    Call,
    /// Observations of a process
    Seen,
    /// Texts, each with its length
    Text,
    /// Length and JSON
    Other,
}

impl Column {
    pub const COUNT: usize = Self::Other as usize + 1;
}

/// Steps that are told by their place.
pub const RECENT_STEPS: usize = 8;

/// How the recording begins: what is known before the first event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// Version of the tfmem that recorded.
    pub tfmem: String,
    pub grace_ns: u64,
    pub min_bytes: u64,
    pub facts: RecordedFacts,
}

/// How it ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tail {
    /// Events in the recording.
    pub events: u64,
    pub facts: RecordedFacts,
}

/// [`Facts`] as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedFacts {
    pub host: Host,
    pub capabilities: BTreeMap<String, String>,
    pub boot_unix_ns: u64,
    pub cost: Option<Cost>,
    pub lost: BTreeMap<String, u64>,
}

impl Head {
    #[must_use]
    pub fn new(options: Options, facts: &Facts) -> Self {
        Self {
            tfmem: env!("CARGO_PKG_VERSION").to_owned(),
            grace_ns: options.grace_ns,
            min_bytes: options.min_bytes,
            // What the trace costs is known at its end alone.
            facts: RecordedFacts { cost: None, ..facts.into() },
        }
    }

    #[must_use]
    pub fn options(&self) -> Options {
        Options { grace_ns: self.grace_ns, min_bytes: self.min_bytes, ..Options::default() }
    }
}

impl From<&Facts> for RecordedFacts {
    fn from(facts: &Facts) -> Self {
        let Facts { host, capabilities, cost, clock, lost } = facts.clone();
        Self { host, capabilities, boot_unix_ns: clock.boot_unix_ns, cost, lost }
    }
}

impl From<RecordedFacts> for Facts {
    fn from(recorded: RecordedFacts) -> Self {
        let RecordedFacts { host, capabilities, boot_unix_ns, cost, lost } = recorded;
        Self { host, capabilities, cost, clock: WallClock { boot_unix_ns }, lost }
    }
}

/// What stands before a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: u8,
    pub codec: u8,
    pub sequence: u32,
    pub stored: u32,
    pub raw: u32,
    pub payload_crc: u32,
}

impl FrameHeader {
    #[must_use]
    pub fn to_bytes(self) -> [u8; FRAME_HEADER] {
        let [s0, s1, s2, s3] = self.sequence.to_le_bytes();
        let [l0, l1, l2, l3] = self.stored.to_le_bytes();
        let [r0, r1, r2, r3] = self.raw.to_le_bytes();
        let described = [self.kind, self.codec, 0, 0, s0, s1, s2, s3, l0, l1, l2, l3, r0, r1, r2, r3];
        let [c0, c1, c2, c3] = crc32fast::hash(&described).to_le_bytes();
        let [p0, p1, p2, p3] = self.payload_crc.to_le_bytes();
        let mut bytes = [0; FRAME_HEADER];
        let (first, rest) = bytes.split_at_mut(described.len());
        first.copy_from_slice(&described);
        rest.copy_from_slice(&[c0, c1, c2, c3, p0, p1, p2, p3]);
        bytes
    }

    /// `None`: not what a writer wrote, or more than a frame may hold.
    #[must_use]
    pub fn parse(bytes: &[u8; FRAME_HEADER]) -> Option<Self> {
        let number = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)) };
        if number(16)? != crc32fast::hash(bytes.get(..16)?) {
            return None;
        }
        let header = Self {
            kind: *bytes.first()?,
            codec: *bytes.get(1)?,
            sequence: number(4)?,
            stored: number(8)?,
            raw: number(12)?,
            payload_crc: number(20)?,
        };
        // zstd makes incompressible bytes a little longer.
        let fits = header.raw as usize <= MAX_RAW && header.stored as usize <= MAX_RAW + MAX_RAW / 64;
        fits.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_round_trips_and_notices_every_flipped_bit() {
        let header = FrameHeader { kind: 2, codec: 1, sequence: 7, stored: 1000, raw: 5000, payload_crc: 0xdead_beef };
        let bytes = header.to_bytes();
        assert_eq!(FrameHeader::parse(&bytes), Some(header));
        for bit in 0..20 * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::parse(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_that_declares_too_much_is_refused() {
        let header = FrameHeader { kind: 2, codec: 1, sequence: 0, stored: 10, raw: u32::MAX, payload_crc: 0 };
        assert_eq!(FrameHeader::parse(&header.to_bytes()), None);
        let header = FrameHeader { raw: 10, stored: u32::MAX, ..header };
        assert_eq!(FrameHeader::parse(&header.to_bytes()), None);
    }
}
