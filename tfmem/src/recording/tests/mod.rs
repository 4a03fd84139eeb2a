mod damage;
mod generate;
mod recorder;
mod round_trip;
mod size;

use std::io;

use super::{
    format::{Head, Tail},
    reader::{End, Reader},
    writer::Writer,
};
use crate::event::Event;

/// The recording of these events, in frames of at most `frame` events.
fn record(events: &[Event], frame: usize) -> Vec<u8> {
    let mut writer = Writer::begin(Vec::new(), &head()).unwrap();
    for events in events.chunks(frame) {
        for event in events {
            writer.push(event).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish(tail()).unwrap();
    std::mem::take(writer.output())
}

fn read(bytes: &[u8]) -> (Vec<Event>, End) {
    let mut reader = Reader::open(io::Cursor::new(bytes)).unwrap();
    let events = reader.by_ref().collect();
    (events, reader.end())
}

fn head() -> Head {
    Head { tfmem: "0.0.1".to_owned(), grace_ns: 5, min_bytes: 7, facts: (&crate::retention::testing::facts()).into() }
}

fn tail() -> Tail {
    Tail { events: 0, facts: (&crate::retention::testing::facts()).into() }
}
