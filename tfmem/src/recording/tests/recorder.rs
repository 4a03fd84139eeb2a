//! The thread: in time, and when the disk says no.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{generate, head, read};
use crate::{
    event::Event,
    recording::recorder::{Output, Recorder},
    retention::testing,
};

/// A disk of a certain size, which is seen from outside while it is written to.
#[derive(Clone, Default)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    size: usize,
}

impl Disk {
    fn of(size: usize) -> Self {
        Self { size, ..Self::default() }
    }

    fn content(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Write for Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().unwrap();
        let room = buf.len().min(self.size - bytes.len());
        if room == 0 && !buf.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(&buf[..room]);
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Disk {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(len as usize);
        Ok(())
    }
}

fn batches(events: &[Event]) -> Vec<Arc<Vec<Event>>> {
    events.chunks(1000).map(|batch| Arc::new(batch.to_vec())).collect()
}

#[test]
fn events_are_on_the_disk_within_the_second() {
    let disk = Disk::of(usize::MAX);
    let mut recorder = Recorder::start(disk.clone(), &head()).unwrap();
    let events = generate::training(10);
    recorder.send(&Arc::new(events.clone()));
    let begun = Instant::now();
    while read(&disk.content()).0 != events {
        assert!(begun.elapsed() < Duration::from_secs(1), "still not there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(read(&disk.content()).1.tail.is_none());
    let mut facts = testing::facts();
    recorder.finish(&mut facts);
    assert!(facts.lost.is_empty());
    assert!(read(&disk.content()).1.is_whole());
}

#[test]
fn a_full_disk_ends_the_recording_and_everything_that_is_missing_is_counted() {
    let events = generate::training(100_000);
    for size in [1_000, 20_000, 100_000, 200_000] {
        let disk = Disk::of(size);
        let mut recorder = Recorder::start(disk.clone(), &head()).unwrap();
        for batch in batches(&events) {
            recorder.send(&batch);
        }
        let mut facts = testing::facts();
        recorder.finish(&mut facts);
        let (read, end) = read(&disk.content());
        assert!(read == events[..read.len()]);
        assert!(end.tail.is_none() && !end.damaged && end.unread == 0, "half a frame was cut off: {end:?}");
        assert_eq!(facts.lost["recording_events_lost"], (events.len() - read.len()) as u64, "{size}");
    }
}

#[test]
fn no_room_for_the_beginning_is_an_error_at_once() {
    assert!(Recorder::start(Disk::of(20), &head()).is_err());
}
