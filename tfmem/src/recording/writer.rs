//! Events → frames → bytes. Only ever appended.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use zstd::bulk::Compressor;

use super::{
    encode::Encoder,
    format::{FrameHeader, Head, MAGIC, MAX_EVENTS, START, Tail, VERSION, codec, frame},
};
use crate::event::Event;

/// A frame waits this long for more events. With the time that events wait to be put in order this stays well below
/// the second that a killed tracer may lose.
pub const LATEST: Duration = Duration::from_millis(300);
/// A frame is ended when it has this many bytes: enough for the dictionaries and zstd to pay, small beside memory.
const ENOUGH_BYTES: usize = 1 << 20;
/// The columns leave little to find: level 3 takes twice as long for 3 % less, level 9 seven times as long for 4 %
/// (measured, see `docs/recording.md`).
const LEVEL: i32 = 1;

pub struct Writer<W> {
    out: W,
    encoder: Encoder,
    compressor: Compressor<'static>,
    sequence: u32,
    /// When the first event of the frame in the making came.
    since: Option<Instant>,
    /// Events taken, and those of them that are not in the file yet.
    events: u64,
    pending: u64,
    too_large: u64,
    /// Bytes of complete frames.
    written: u64,
    raw: Vec<u8>,
    framed: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// What the output says.
    pub fn begin(mut out: W, head: &Head) -> io::Result<Self> {
        let mut start = Vec::with_capacity(START);
        start.extend_from_slice(&MAGIC);
        start.extend_from_slice(&VERSION.to_le_bytes());
        out.write_all(&start)?;
        let mut writer = Self {
            out,
            encoder: Encoder::default(),
            compressor: Compressor::new(LEVEL)?,
            sequence: 0,
            since: None,
            events: 0,
            pending: 0,
            too_large: 0,
            written: start.len() as u64,
            raw: Vec::new(),
            framed: Vec::new(),
        };
        writer.put(frame::HEAD, codec::PLAIN, &serde_json::to_vec(head)?)?;
        Ok(writer)
    }

    /// Takes one event. It is in the file at the latest when [`Self::flush`] was called.
    ///
    /// # Errors
    /// What the output says.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        if self.encoder.push(event).is_err() {
            self.too_large += 1;
            return Ok(());
        }
        self.events += 1;
        self.pending += 1;
        if self.encoder.events() == MAX_EVENTS || self.encoder.len() >= ENOUGH_BYTES {
            self.flush()?;
        } else if self.since.is_none() {
            self.since = Some(Instant::now());
        }
        Ok(())
    }

    /// When the frame in the making must be written; `None`: there is none.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        Some(self.since? + LATEST)
    }

    /// Writes what was taken so far.
    ///
    /// # Errors
    /// What the output says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.since = None;
        if self.encoder.events() == 0 {
            return Ok(());
        }
        self.raw.clear();
        self.encoder.take_frame(&mut self.raw);
        let raw = std::mem::take(&mut self.raw);
        let stored = self.compressor.compress(&raw)?;
        let result = self.put_stored(frame::EVENTS, codec::ZSTD, raw.len(), &stored);
        self.raw = raw;
        if result.is_ok() {
            self.pending = 0;
        }
        result
    }

    /// Ends the recording. `tail.events` is filled in here.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(&mut self, mut tail: Tail) -> io::Result<()> {
        self.flush()?;
        tail.events = self.events;
        self.put(frame::TAIL, codec::PLAIN, &serde_json::to_vec(&tail)?)
    }

    /// Bytes of complete frames: what lies behind them after an error can be cut off.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Events that no frame could hold.
    #[must_use]
    pub const fn too_large(&self) -> u64 {
        self.too_large
    }

    /// After an error: forgets the events that are in no complete frame, and says how many they are.
    pub fn discard(&mut self) -> u64 {
        self.since = None;
        self.raw.clear();
        self.encoder.take_frame(&mut self.raw);
        std::mem::take(&mut self.pending)
    }

    pub const fn output(&mut self) -> &mut W {
        &mut self.out
    }

    fn put(&mut self, kind: u8, codec: u8, payload: &[u8]) -> io::Result<()> {
        self.put_stored(kind, codec, payload.len(), payload)
    }

    fn put_stored(&mut self, kind: u8, codec: u8, raw: usize, stored: &[u8]) -> io::Result<()> {
        let length = |bytes: usize| u32::try_from(bytes).map_err(|_| io::Error::other("a frame of 4 GiB"));
        let header = FrameHeader {
            kind,
            codec,
            sequence: self.sequence,
            stored: length(stored.len())?,
            raw: length(raw)?,
            payload_crc: crc32fast::hash(stored),
        };
        // One write: a tracer that is killed between two would leave half a frame.
        self.framed.clear();
        self.framed.extend_from_slice(&header.to_bytes());
        self.framed.extend_from_slice(stored);
        self.out.write_all(&self.framed)?;
        self.written += self.framed.len() as u64;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}
