//! A recording of a real run (`recordings/record.sh` made it), read without root: what is reported on it stays the
//! same, and nothing that can be done to the file makes the reader fail. `TFMEM_BLESS=1` writes the reports anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use tfmem::{
    recording::{
        reader::{End, OpenError, Reader},
        replay::{Choices, Replay, replay},
    },
    report::{
        json,
        model::{Cause, Layer},
        text,
    },
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(name)
}

fn recording() -> Vec<u8> {
    fs::read(path("case01.tfmem")).unwrap()
}

fn report(bytes: &[u8], choices: Choices) -> Replay {
    replay(Reader::open(bytes).unwrap(), choices).unwrap()
}

/// Reads to the end; `None`: refused at once.
fn read(bytes: &[u8]) -> Option<(u64, End)> {
    let mut reader = Reader::open(bytes).ok()?;
    let events = reader.by_ref().count() as u64;
    Some((events, reader.end()))
}

#[test]
fn the_reports_are_as_they_were() {
    let Replay { report, notes } = report(&recording(), Choices::default());
    let mut as_json = Vec::new();
    json::write(&report, &mut as_json).unwrap();
    let as_text = text::render(&report, text::Style::default()).into_bytes();
    for (name, actual) in [("case01.json", as_json), ("case01.txt", as_text)] {
        if std::env::var_os("TFMEM_BLESS").is_some() {
            fs::write(path(name), &actual).unwrap();
        } else if fs::read(path(name)).unwrap_or_default() != actual {
            let beside = std::env::temp_dir().join(name);
            fs::write(&beside, &actual).unwrap();
            panic!("not as it was (TFMEM_BLESS=1 accepts it): diff {} {}", path(name).display(), beside.display());
        }
    }
    assert!(notes.iter().all(|note| note.contains("other versions")), "{notes:?}");
    assert!(report.losses.values().all(|&count| count == 0), "{:?}", report.losses);
}

#[test]
fn it_tells_what_the_case_is_about() {
    let report = report(&recording(), Choices::default()).report;
    let process = report.processes.iter().find(|process| !process.frameworks.is_empty()).unwrap();
    assert_eq!(process.handles.sessions.open.len(), 4);
    let top = process.verdicts.iter().max_by_key(|verdict| verdict.bytes).unwrap();
    assert_eq!(top.cause, Cause::SessionOpen);
    let exit = process.boundaries.last().unwrap();
    assert!(exit.survivors.iter().any(|survivor| survivor.layer == Layer::PoolChunk && survivor.bytes >= 64 << 20));
}

/// Names of places on the machine where it was made do not belong into a repository.
#[test]
fn it_tells_nothing_of_the_machine_where_it_was_made() {
    let bytes = recording();
    let mut reader = Reader::open(bytes.as_slice()).unwrap();
    let host = &reader.head().facts.host;
    assert!(host.hostname == "example" && host.boot_id.chars().all(|c| c == '0' || c == '-'), "{host:?}");
    for event in reader.by_ref() {
        let said = format!("{event:?}");
        for place in ["/root", "/home", "/tmp", "/mnt"] {
            assert!(!said.contains(place), "{place}: {}", &said[..said.len().min(2000)]);
        }
    }
}

#[test]
fn options_can_be_chosen_anew() {
    let choices = Choices { grace_ns: Some(100_000_000), min_bytes: Some(1), ..Choices::default() };
    let report = report(&recording(), choices).report;
    assert_eq!((report.options.grace_ms, report.options.min_bytes), (100, 1));
}

#[test]
fn its_size() {
    let bytes = recording();
    let (events, end) = read(&bytes).unwrap();
    assert!(end.is_whole(), "{end:?}");
    println!("{} bytes for {events} events, snapshots of the process and libraries among them", bytes.len());
    assert!(bytes.len() < 300 << 10);
}

#[test]
fn cut_and_flipped_it_gives_an_answer_and_a_note() {
    let bytes = recording();
    let whole = read(&bytes).unwrap().0;
    for at in (0..bytes.len()).step_by(1000) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        for damaged in [&bytes[..at], &flipped] {
            match Reader::open(damaged) {
                Ok(reader) => {
                    let Replay { report, notes } = replay(reader, Choices::default()).unwrap();
                    assert!(report.events <= whole && report.losses["recording_truncated"] == 1, "at {at}");
                    assert!(notes[0].contains("cut short") || notes[0].contains("damaged"), "at {at}: {notes:?}");
                }
                Err(error) => {
                    assert!(at < 2000, "at {at}: {error}");
                    assert!(matches!(error, OpenError::NotARecording | OpenError::Version(_) | OpenError::Head));
                }
            }
        }
    }
}

/// A hundred thousand damaged copies. Most stop at a wrong sum, as they must.
#[test]
fn mutations_never_make_the_reader_fail() {
    let bytes = recording();
    let whole = read(&bytes).unwrap().0;
    // A wrong head is refused at once: three of four rounds leave it as it is.
    let head = Reader::open(bytes.as_slice()).unwrap().stopped_at() as usize;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let begun = Instant::now();
    let (mut refused, mut noticed) = (0, 0);
    for round in 0..100_000 {
        // Mostly of the beginning: what is sound in front of the damage would only be read again and again.
        let len = bytes.len().min(if round % 2000 == 0 { usize::MAX } else { 1 << (6 + roll(6)) });
        let mut damaged = bytes[..len].to_vec();
        let sound = if round % 4 == 0 { 0 } else { head.min(len - 1) };
        for _ in 0..=roll(4) {
            let at = (sound + roll(damaged.len().saturating_sub(sound))).min(damaged.len() - 1);
            match roll(4) {
                0 => damaged[at] = roll(256) as u8,
                1 => damaged[at] ^= 1 << roll(8),
                2 => damaged.truncate(at + 1),
                _ => damaged.insert(at, roll(256) as u8),
            }
        }
        if damaged == bytes {
            continue;
        }
        match read(&damaged) {
            None => refused += 1,
            Some((events, end)) => {
                assert!(events <= whole && !end.is_whole(), "round {round}: {end:?}");
                noticed += 1;
            }
        }
    }
    println!("{refused} refused, {noticed} read up to the damage, in {:?}", begun.elapsed());
}
