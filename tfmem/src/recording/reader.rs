//! A recording → its events, as far as it is sound.
//!
//! The file may be anybody's. A frame is believed when its sums are right, and even then nothing in it can make the
//! reader panic, loop, or take more memory than a frame may hold.

use std::io::{self, Read};

use thiserror::Error;
use zstd::bulk::Decompressor;

use super::{
    decode::Decoder,
    format::{FRAME_HEADER, FrameHeader, Head, MAGIC, START, Tail, VERSION, codec, frame},
};
use crate::event::Event;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("it is not a recording of tfmem")]
    NotARecording,
    #[error("it is a recording of version {0}, this tfmem reads version {VERSION}: use the tfmem that recorded it")]
    Version(u32),
    #[error("it is damaged or cut short at its very beginning: nothing can be read")]
    Head,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// How the reading ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// `None`: the recording was cut short, or is damaged.
    pub tail: Option<Tail>,
    /// Reading stopped at something that no writer wrote.
    pub damaged: bool,
    /// Reading stopped at an error of the file itself.
    pub error: Option<String>,
    /// Where reading stopped, in bytes, and how many follow.
    pub stopped_at: u64,
    pub unread: u64,
    /// Events of kinds that this tfmem does not know.
    pub unknown: u64,
}

impl End {
    /// Nothing is missing.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.tail.is_some() && !self.damaged && self.unread == 0
    }
}

/// Reads events in order; they end where the recording does, or where it is no longer sound: what was freed behind a
/// gap would look like a leak, so nothing is read behind one.
pub struct Reader<R> {
    input: R,
    head: Head,
    frame: Option<Decoder>,
    decompressor: Decompressor<'static>,
    sequence: u32,
    /// Bytes of sound frames.
    at: u64,
    /// Bytes read behind them.
    behind: u64,
    end: End,
    over: bool,
}

/// Why no further frame can be had.
enum Stop {
    /// The file ends here, maybe in the middle of a frame.
    Cut,
    Damaged,
    Error(io::Error),
}

impl<R: Read> Reader<R> {
    /// # Errors
    /// When it is no recording, of another version, or damaged before the first event.
    pub fn open(mut input: R) -> Result<Self, OpenError> {
        let mut start = Vec::with_capacity(START);
        (&mut input).take(START as u64).read_to_end(&mut start)?;
        let version = start.strip_prefix(&MAGIC).ok_or(OpenError::NotARecording)?;
        let version = version.try_into().map(u32::from_le_bytes).map_err(|_| OpenError::Head)?;
        if version != VERSION {
            return Err(OpenError::Version(version));
        }
        let mut reader = Self {
            input,
            head: Head::default(),
            frame: None,
            decompressor: Decompressor::new()?,
            sequence: 0,
            at: START as u64,
            behind: 0,
            end: End::default(),
            over: false,
        };
        match reader.next_frame() {
            Ok((frame::HEAD, payload)) => {
                reader.head = serde_json::from_slice(&payload).map_err(|_| OpenError::Head)?;
                Ok(reader)
            }
            Err(Stop::Error(error)) => Err(error.into()),
            Ok(_) | Err(Stop::Cut | Stop::Damaged) => Err(OpenError::Head),
        }
    }

    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// Bytes of the frames that were read and found sound.
    pub const fn stopped_at(&self) -> u64 {
        self.at
    }

    /// How the reading ended. Reads what is left of the file to tell how much it is.
    pub fn end(mut self) -> End {
        let rest = io::copy(&mut self.input, &mut io::sink()).unwrap_or(0);
        self.end.stopped_at = self.at;
        self.end.unread = self.behind + rest;
        self.end
    }

    fn next_frame(&mut self) -> Result<(u8, Vec<u8>), Stop> {
        let mut header = Vec::with_capacity(FRAME_HEADER);
        self.fill(&mut header, FRAME_HEADER)?;
        let header = header.as_slice().try_into().ok().and_then(FrameHeader::parse).ok_or(Stop::Damaged)?;
        if header.sequence != self.sequence {
            return Err(Stop::Damaged);
        }
        // Grows with what is really there, not with what is declared.
        let mut stored = Vec::new();
        self.fill(&mut stored, header.stored as usize)?;
        if crc32fast::hash(&stored) != header.payload_crc {
            return Err(Stop::Damaged);
        }
        let raw = header.raw as usize;
        let payload = match header.codec {
            codec::PLAIN => stored,
            codec::ZSTD => self.decompressor.decompress(&stored, raw).map_err(|_| Stop::Damaged)?,
            _ => return Err(Stop::Damaged),
        };
        if payload.len() != raw {
            return Err(Stop::Damaged);
        }
        self.at += self.behind;
        self.behind = 0;
        self.sequence = self.sequence.wrapping_add(1);
        Ok((header.kind, payload))
    }

    fn fill(&mut self, to: &mut Vec<u8>, len: usize) -> Result<(), Stop> {
        let read = (&mut self.input).take(len as u64).read_to_end(to);
        self.behind += to.len() as u64;
        match read {
            Ok(_) if to.len() == len => Ok(()),
            Ok(_) => Err(Stop::Cut),
            Err(error) => Err(Stop::Error(error)),
        }
    }

    /// The next frame of events is there, or the end is.
    fn advance(&mut self) {
        let next = match self.next_frame() {
            Ok((frame::EVENTS, payload)) => Decoder::new(payload).map(Some).map_err(|_| Stop::Damaged),
            Ok((frame::TAIL, payload)) => match serde_json::from_slice(&payload) {
                Ok(tail) => {
                    self.end.tail = Some(tail);
                    Ok(None)
                }
                Err(_) => Err(Stop::Damaged),
            },
            Ok(_) => Err(Stop::Damaged),
            Err(stop) => Err(stop),
        };
        match next {
            Ok(frame) => {
                self.over = frame.is_none();
                self.frame = frame;
            }
            Err(stop) => {
                self.over = true;
                self.frame = None;
                self.end.damaged = matches!(stop, Stop::Damaged);
                self.end.error = match stop {
                    Stop::Error(error) => Some(error.to_string()),
                    Stop::Cut | Stop::Damaged => None,
                };
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        while !self.over {
            match self.frame.as_mut().filter(|frame| frame.left() > 0).map(Decoder::event) {
                Some(Ok(Some(event))) => return Some(event),
                Some(Ok(None)) => self.end.unknown += 1,
                Some(Err(_)) => {
                    self.over = true;
                    self.end.damaged = true;
                }
                None => self.advance(),
            }
        }
        None
    }
}
