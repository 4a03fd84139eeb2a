//! One record of the ring buffer → one event. The record is viewed in place, never copied as a whole.

use std::sync::Arc;

use tfmem_common::{
    config::FileId,
    wire::{self, Header, kind, memory},
};
use thiserror::Error;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{
    catalogue,
    event::{Addr, Body, Call, Event, Origin, Stack, StackId},
};

#[derive(Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    #[error("record of {len} bytes is too short for kind {kind}")]
    Short { kind: u16, len: usize },
    #[error("unknown record kind {0}")]
    Kind(u16),
    #[error("record of version {0}, this build reads {ours}", ours = wire::VERSION)]
    Version(u16),
    #[error("call number {0} is not in the catalogue")]
    Call(u32),
    #[error("memory call {0} is not known")]
    Memory(u32),
}

/// What a record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Event(Event),
    /// A process stands still until the loader has judged a file. Not part of the ledger's world.
    Hold(Hold),
    /// A page of the memory of a stack that comes next.
    Copy(Box<wire::Copy>),
    /// A call that turned out to change nothing that matters.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub pid: u32,
    pub tid: u32,
    /// Start of the mapping, 0: the whole image is new (exec).
    pub start: Addr,
    /// The file as the kernel knows it; zero when the kernel's layout is not known.
    pub file: FileId,
}

/// # Errors
/// A record that does not have the shape its kind promises. The caller counts it.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let header: &Header = view(0, bytes)?;
    if header.version != wire::VERSION {
        return Err(DecodeError::Version(header.version));
    }
    let mut stack = 0;
    let body = match header.kind {
        kind::CHUNK => {
            let record: &wire::Chunk = view(kind::CHUNK, bytes)?;
            stack = record.stack;
            chunk(record)
        }
        kind::HEAP_ALLOC => {
            let record: &wire::HeapAlloc = view(kind::HEAP_ALLOC, bytes)?;
            stack = record.stack;
            heap_alloc(record)
        }
        kind::HEAP_FREE => Body::HeapFree { addr: view::<wire::HeapFree>(kind::HEAP_FREE, bytes)?.address },
        kind::ENTER => {
            let record: &wire::Enter = view(kind::ENTER, bytes)?;
            stack = record.stack;
            entered(record)?
        }
        kind::ENTER_TEXT => {
            let record: &wire::EnterText = view(kind::ENTER_TEXT, bytes)?;
            stack = record.enter.stack;
            enter(&record.enter, text(&record.text, record.text_len))?
        }
        kind::LEAVE => left(view(kind::LEAVE, bytes)?)?,
        kind::MEMORY => {
            let record: &wire::Memory = view(kind::MEMORY, bytes)?;
            stack = record.stack;
            memory_call(record)?
        }
        kind::GPU => {
            let record: &wire::Gpu = view(kind::GPU, bytes)?;
            stack = record.stack;
            match catalogue::gpu::event(record) {
                Some(gpu) => Body::Gpu(gpu),
                None => return Ok(Record::Nothing),
            }
        }
        kind::STACK => Body::Stack(Arc::new(frames(bytes)?)),
        kind::FORK => {
            let record: &wire::Fork = view(kind::FORK, bytes)?;
            Body::Fork { child: record.child, shares_memory: record.shares_memory != 0 }
        }
        kind::EXEC => Body::Exec,
        kind::EXIT => Body::ThreadExit,
        kind::NAME => {
            let record: &wire::Name = view(kind::NAME, bytes)?;
            Body::OpName { op: record.hash, name: text(&record.text, record.len).unwrap_or_else(|| Arc::from("")) }
        }
        kind::COPY => return Ok(Record::Copy(Box::new(*view::<wire::Copy>(kind::COPY, bytes)?))),
        kind::HOLD => return Ok(Record::Hold(hold(view(kind::HOLD, bytes)?))),
        other => return Err(DecodeError::Kind(other)),
    };
    Ok(Record::Event(Event { at: header.at, pid: header.pid, tid: header.tid, stack: StackId::new(stack), body }))
}

/// The bytes as a record. The ring buffer aligns records to 8 bytes; a slice that is not aligned is refused as short.
fn view<T: FromBytes + KnownLayout + Immutable>(kind: u16, bytes: &[u8]) -> Result<&T, DecodeError> {
    T::ref_from_prefix(bytes).map(|(record, _)| record).map_err(|_| DecodeError::Short { kind, len: bytes.len() })
}

fn chunk(record: &wire::Chunk) -> Body {
    if record.taken == 0 {
        return Body::ChunkFree { pool: record.pool, addr: record.chunk };
    }
    Body::ChunkAlloc {
        pool: record.pool,
        addr: record.chunk,
        requested: record.requested,
        bytes: record.allocated,
        origin: origin(&record.origin),
    }
}

fn heap_alloc(record: &wire::HeapAlloc) -> Body {
    Body::HeapAlloc { addr: record.address, bytes: record.bytes, origin: origin(&record.origin) }
}

const fn origin(record: &wire::Origin) -> Origin {
    Origin { op: record.op, step: record.step, region: record.region, dtype: record.dtype }
}

fn enter(record: &wire::Enter, text: Option<Arc<str>>) -> Result<Body, DecodeError> {
    let call = call(record.call)?;
    Ok(Body::Enter { call, args: catalogue::arguments(call, record.args), text })
}

fn entered(record: &wire::Enter) -> Result<Body, DecodeError> {
    user_call(record.call).map_or_else(|| enter(record, None), |number| Ok(Body::UserEnter { number }))
}

fn left(record: &wire::Leave) -> Result<Body, DecodeError> {
    let leave = || Ok(Body::Leave { call: call(record.call)?, ret: record.ret });
    user_call(record.call).map_or_else(leave, |number| Ok(Body::UserLeave { number }))
}

/// A symbol that the user named as a boundary.
fn user_call(number: u32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&number| number >= Body::FIRST_USER_CALL)
}

fn call(number: u32) -> Result<Call, DecodeError> {
    u16::try_from(number).ok().and_then(Call::from_number).ok_or(DecodeError::Call(number))
}

fn memory_call(record: &wire::Memory) -> Result<Body, DecodeError> {
    let (start, len) = (record.start, record.len);
    Ok(match record.call {
        memory::MMAP => {
            Body::Map { start, len: page_up(len), prot: record.prot, flags: record.flags as u32, file: record.fd >= 0 }
        }
        memory::MUNMAP => Body::Unmap { start, len: page_up(len) },
        memory::MREMAP => Body::Remap {
            old_start: record.old_start,
            old_len: page_up(record.old_len),
            start,
            len: page_up(len),
            keep_old: record.flags & libc::MREMAP_DONTUNMAP as u64 != 0,
            took: record.took,
        },
        memory::BRK => Body::Brk { end: start },
        memory::MADVISE => Body::Advise { start, len, advice: record.flags as i32 },
        other => return Err(DecodeError::Memory(other)),
    })
}

/// The kernel maps whole pages whatever length it is given.
const fn page_up(len: u64) -> u64 {
    len.saturating_add(4095) & !4095
}

fn hold(record: &wire::Hold) -> Hold {
    Hold {
        pid: record.header.pid,
        tid: record.header.tid,
        start: record.start,
        file: FileId { ino: record.ino, dev: record.dev, _pad: 0 },
    }
}

/// A stack's record is as long as it has frames.
fn frames(bytes: &[u8]) -> Result<Stack, DecodeError> {
    let short = || DecodeError::Short { kind: kind::STACK, len: bytes.len() };
    let (head, rest) = bytes.split_at_checked(wire::STACK_HEAD).ok_or_else(short)?;
    let word = |at: usize| head.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
    let (id, counts) = word(24).zip(word(32)).ok_or_else(short)?;
    let (count, end) = (counts as u32, (counts >> 32) as u32);
    let frames = rest.get(..count as usize * 8).ok_or_else(short)?;
    let frames = frames.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?))).collect();
    Ok(Stack { id: StackId::new(id).ok_or_else(short)?, frames, end })
}

/// The first `len` bytes as text; `None` when there are none. Bytes that are no UTF-8 are shown as �.
fn text(bytes: &[u8], len: u32) -> Option<Arc<str>> {
    let bytes = bytes.get(..len as usize)?;
    (!bytes.is_empty()).then(|| Arc::from(String::from_utf8_lossy(bytes)))
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    fn header(kind: u16) -> Header {
        Header { kind, version: wire::VERSION, _pad: 0, at: 7, pid: 1, tid: 2 }
    }

    fn free(kind: u16) -> wire::HeapFree {
        wire::HeapFree { header: header(kind), address: 0x1000 }
    }

    #[test]
    fn a_free_decodes_in_place() {
        let decoded = decode(free(kind::HEAP_FREE).as_bytes());
        let event = Event { at: 7, pid: 1, tid: 2, stack: None, body: Body::HeapFree { addr: 0x1000 } };
        assert_eq!(decoded, Ok(Record::Event(event)));
    }

    #[test]
    fn what_does_not_fit_is_an_error_never_a_panic() {
        assert_eq!(decode(free(99).as_bytes()), Err(DecodeError::Kind(99)));
        assert!(matches!(decode(free(kind::CHUNK).as_bytes()), Err(DecodeError::Short { .. })));
        assert!(matches!(decode(&[0; 3]), Err(DecodeError::Short { .. })));
        let mut old = free(kind::HEAP_FREE);
        old.header.version = 0;
        assert_eq!(decode(old.as_bytes()), Err(DecodeError::Version(0)));
    }

    #[test]
    fn lengths_are_whole_pages_and_cannot_overflow() {
        assert_eq!(page_up(1), 4096);
        assert_eq!(page_up(4096), 4096);
        assert_eq!(page_up(u64::MAX), !4095);
    }
}
