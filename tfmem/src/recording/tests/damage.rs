//! Recordings that were cut, damaged or made up: an answer, never a panic.

use std::io;

use super::{
    generate::{self, Dice},
    read, record,
};
use crate::{
    event::{Body, Event},
    recording::{
        bytes::{put, put_bytes},
        decode::Decoder,
        format::{Column, FRAME_HEADER, FrameHeader, MAX_EVENTS, MAX_RAW, codec, frame, kind},
        reader::{OpenError, Reader},
        replay::{Choices, replay},
    },
};

#[test]
fn cut_anywhere_it_reads_up_to_there() {
    let events = generate::training(400);
    let bytes = record(&events, 20);
    let (mut most, mut whole) = (0, 0);
    for len in 0..bytes.len() {
        match Reader::open(&bytes[..len]) {
            Ok(mut reader) => {
                let read: Vec<Event> = reader.by_ref().collect();
                let end = reader.end();
                assert!(read == events[..read.len()] && read.len().is_multiple_of(20), "cut at {len}");
                assert!(read.len() >= most, "more bytes, fewer events");
                assert!(end.tail.is_none() && !end.damaged);
                assert_eq!(end.stopped_at + end.unread, len as u64);
                most = read.len();
                whole += u64::from(end.unread == 0);
            }
            Err(OpenError::NotARecording | OpenError::Head) => assert_eq!(most, 0),
            Err(error) => panic!("cut at {len}: {error}"),
        }
    }
    assert_eq!((most, whole), (400, 21), "behind the head and behind each frame nothing is missing");
}

#[test]
fn a_flipped_bit_is_noticed_wherever_it_is() {
    let events = generate::training(400);
    let bytes = record(&events, 100);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let Ok(mut reader) = Reader::open(damaged.as_slice()) else { continue };
        let read: Vec<Event> = reader.by_ref().collect();
        assert!(read.len().is_multiple_of(100) && read == events[..read.len()], "byte {at}");
        assert!(!reader.end().is_whole(), "byte {at}");
    }
}

#[test]
fn the_report_says_what_is_missing() {
    let bytes = record(&generate::training(2_000), 500);
    let report = |bytes: &[u8]| replay(Reader::open(bytes).unwrap(), Choices::default()).unwrap();
    let whole = report(&bytes);
    assert!(whole.report.losses.keys().all(|kind| !kind.starts_with("recording")));
    assert_eq!(whole.notes.len(), 1, "only that another version recorded it: {:?}", whole.notes);

    let cut = report(&bytes[..bytes.len() / 2]);
    assert_eq!(cut.report.losses["recording_truncated"], 1);
    assert!(cut.report.losses["recording_unread_bytes"] > 0);
    assert!(cut.notes[0].contains("cut short"), "{:?}", cut.notes);
    assert_eq!(cut.report.host.kernel, "6.12.0", "the head knows the machine");

    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let damaged = report(&damaged);
    assert_eq!(damaged.report.losses["recording_damaged_frames"], 1);
    assert!(damaged.notes[0].contains("damaged"), "{:?}", damaged.notes);
    assert!(damaged.report.events < whole.report.events);

    let mut longer = bytes;
    longer.extend_from_slice(b"appended");
    let longer = report(&longer);
    assert_eq!(longer.report.events, whole.report.events);
    assert!(longer.notes[0].contains("8 bytes that do not belong"), "{:?}", longer.notes);
}

#[test]
fn other_files_are_told_apart() {
    assert!(matches!(Reader::open(&b""[..]), Err(OpenError::NotARecording)));
    assert!(matches!(Reader::open(&b"PERFILE2........"[..]), Err(OpenError::NotARecording)));
    assert!(matches!(Reader::open(&b"tfmemrec\x02\0\0\0"[..]), Err(OpenError::Version(2))));
    assert!(matches!(Reader::open(&b"tfmemrec\x01"[..]), Err(OpenError::Head)));
    let Err(OpenError::Io(error)) = Reader::open(Broken) else { panic!("no error") };
    assert_eq!(error.to_string(), "broken disk");
}

struct Broken;

impl io::Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("broken disk"))
    }
}

/// Frames with right sums and anything in them.
#[test]
fn made_up_columns_are_refused_or_read_but_never_more() {
    let events = generate::training(2_000);
    let mut encoder = crate::recording::encode::Encoder::default();
    for event in &events {
        encoder.push(event).unwrap();
    }
    let mut payload = Vec::new();
    encoder.take_frame(&mut payload);
    let mut dice = Dice::new(7);
    for _ in 0..5_000 {
        let mut bytes = payload.clone();
        for _ in 0..=dice.roll(8) {
            let at = dice.roll(bytes.len() as u64) as usize;
            bytes[at] = dice.roll(256) as u8;
        }
        bytes.truncate(bytes.len() - if dice.roll(4) == 0 { dice.roll(50) as usize } else { 0 });
        let Ok(mut decoder) = Decoder::new(bytes) else { continue };
        let mut read = 0;
        while decoder.left() > 0 && decoder.event().is_ok() {
            read += 1;
        }
        assert!(read <= MAX_EVENTS);
    }
}

/// A name of a megabyte, told with one byte for each of a million mappings.
#[test]
fn a_snapshot_cannot_grow_beyond_its_bound() {
    let mut columns: [Vec<u8>; Column::COUNT] = Default::default();
    columns[Column::Kind as usize].push(kind::SNAPSHOT);
    columns[Column::Time as usize].push(0);
    columns[Column::Thread as usize].push(0);
    columns[Column::NewThread as usize].extend([1, 1]);
    put_bytes(&mut columns[Column::Text as usize], &vec![b'x'; 1 << 20]);
    let seen = &mut columns[Column::Seen as usize];
    seen.extend([0, 0, 0, 0]);
    put(seen, 1 << 20);
    seen.extend([3, 1, 1, 1, 0].repeat(1 << 20));
    let mut payload = Vec::new();
    put(&mut payload, 1);
    for column in &columns {
        put(&mut payload, column.len() as u64);
    }
    payload.extend(columns.concat());
    assert!(Decoder::new(payload).unwrap().event().is_err());
}

#[test]
fn a_frame_that_unpacks_to_more_than_it_says_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; MAX_RAW * 2], 3).unwrap();
    let mut bytes = record(&[], 1);
    let reader = Reader::open(bytes.as_slice()).unwrap();
    let behind_head = reader.end().stopped_at as usize;
    bytes.truncate(behind_head);
    let header = FrameHeader {
        kind: frame::EVENTS,
        codec: codec::ZSTD,
        sequence: 1,
        stored: bomb.len() as u32,
        raw: 4096,
        payload_crc: crc32fast::hash(&bomb),
    };
    bytes.extend(header.to_bytes());
    assert_eq!(bytes.len(), behind_head + FRAME_HEADER);
    bytes.extend(&bomb);
    let (events, end) = read(&bytes);
    assert!(events.is_empty() && end.damaged);
}

#[test]
fn what_is_newer_is_skipped_and_counted() {
    let mut columns: [Vec<u8>; Column::COUNT] = Default::default();
    columns[Column::Kind as usize].extend([kind::OTHER, kind::LEAVE, kind::THREAD_EXIT]);
    columns[Column::Time as usize].extend([2, 2, 2]);
    columns[Column::Thread as usize].extend([0, 0, 0]);
    columns[Column::NewThread as usize].extend([1, 1]);
    put_bytes(&mut columns[Column::Other as usize], br#"{"DeviceAlloc": {"bytes": 5}}"#);
    put(&mut columns[Column::Call as usize], 60_000);
    columns[Column::Call as usize].push(0);
    let mut payload = Vec::new();
    put(&mut payload, 3);
    for column in &columns {
        put(&mut payload, column.len() as u64);
    }
    payload.extend(columns.concat());
    let mut decoder = Decoder::new(payload).unwrap();
    assert_eq!(decoder.event(), Ok(None));
    assert_eq!(decoder.event(), Ok(None));
    assert_eq!(decoder.event(), Ok(Some(Event { at: 3, pid: 1, tid: 1, stack: None, body: Body::ThreadExit })));
}
