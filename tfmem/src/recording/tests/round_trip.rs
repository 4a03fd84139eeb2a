//! What is read is what was written, in its order.

use std::sync::Arc;

use proptest::prelude::*;

use super::{generate, head, read, record, tail};
use crate::{
    event::{Body, Event, Mapping, MappingKind, Snapshot},
    recording::{format::Tail, reader::Reader, writer::Writer},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_stream_round_trips(events in generate::events(), frame in 1usize..300) {
        let bytes = record(&events, frame);
        let (again, end) = read(&bytes);
        prop_assert_eq!(&again, &events);
        prop_assert_eq!(end.tail, Some(Tail { events: events.len() as u64, ..tail() }));
        prop_assert!(!end.damaged && end.unread == 0 && end.unknown == 0);
    }
}

#[test]
fn head_and_facts_are_kept() {
    let bytes = record(&[], 1);
    let reader = Reader::open(bytes.as_slice()).unwrap();
    assert_eq!(reader.head(), &head());
    assert_eq!(reader.head().options().grace_ns, 5);
}

/// The program of the million events, whole: dictionaries outgrow one byte and two, frames end by themselves.
#[test]
fn a_long_stream_round_trips_through_many_frames() {
    let events = generate::training(150_000);
    let (again, end) = read(&record(&events, usize::MAX));
    assert!(end.is_whole(), "{end:?}");
    assert_eq!(again.len(), events.len());
    assert!(again == events, "not the same events");
}

#[test]
fn a_snapshot_of_a_very_large_process_fits() {
    let mapping = |i: u64| Mapping {
        start: i << 24,
        len: 1 << 20,
        kind: MappingKind::File,
        resident_bytes: 4096,
        name: format!("/usr/lib/a-long-folder-name/another-long-folder-name/lib{i}.so"),
    };
    let body = Body::Snapshot(Arc::new(Snapshot {
        rss_anon: 40 << 30,
        mappings: (1..65_000).map(mapping).collect(),
        resident: Some((1..2_000_000).map(|i| (i << 14, 4096 * (1 + i % 3))).collect()),
        ..Snapshot::default()
    }));
    let events = [Event { at: 1, pid: 2, tid: 3, stack: None, body }];
    let bytes = record(&events, 1);
    assert!(read(&bytes).0 == events);
}

#[test]
fn what_no_frame_can_hold_is_left_out_and_counted() {
    let mut writer = Writer::begin(Vec::new(), &head()).unwrap();
    let text = "x".repeat(40 << 20);
    let exit = Event { at: 1, pid: 1, tid: 1, stack: None, body: Body::ThreadExit };
    let snapshot = Snapshot { resident: Some(vec![(1, 1); 9 << 20]), ..Snapshot::default() };
    writer.push(&exit).unwrap();
    for body in [
        Body::OpName { op: 1, name: text.as_str().into() },
        Body::Enter { call: crate::event::Call::NewGraph, args: [1; 6], text: Some(text.as_str().into()) },
        Body::Snapshot(Arc::new(snapshot)),
    ] {
        writer.push(&Event { at: 2, pid: 1, tid: 1, stack: None, body }).unwrap();
    }
    writer.push(&exit).unwrap();
    writer.finish(tail()).unwrap();
    assert_eq!(writer.too_large(), 3);
    let (events, end) = read(writer.output());
    assert!(events == [exit.clone(), exit]);
    assert_eq!(end.tail.unwrap().events, 2);
}
