//! The report again, from a recording.

use std::{fs::File, io::Read, path::Path};

use super::reader::{End, OpenError, Reader};
use crate::{
    report::model::Report,
    retention::{Analysis, Facts, Options},
};

/// What the user wants otherwise than it was recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices {
    pub grace_ns: Option<u64>,
    pub min_bytes: Option<u64>,
    pub max_rows: Option<usize>,
}

/// A report, and what there is to say about the recording itself.
#[derive(Debug)]
pub struct Replay {
    pub report: Report,
    pub notes: Vec<String>,
}

/// # Errors
/// When nothing of the recording can be read.
pub fn file(path: &Path, choices: Choices) -> Result<Replay, OpenError> {
    replay(Reader::open(File::open(path)?)?, choices)
}

/// # Errors
/// When nothing of the recording can be read.
pub fn replay<R: Read>(mut reader: Reader<R>, choices: Choices) -> Result<Replay, OpenError> {
    let head = reader.head().clone();
    let recorded = head.options();
    let mut analysis = Analysis::new(Options {
        grace_ns: choices.grace_ns.unwrap_or(recorded.grace_ns),
        min_bytes: choices.min_bytes.unwrap_or(recorded.min_bytes),
        max_rows: choices.max_rows.unwrap_or(recorded.max_rows),
    });
    for event in &mut reader {
        analysis.feed(&event);
    }
    let end = reader.end();
    let mut notes = notes(&end);
    if head.tfmem != env!("CARGO_PKG_VERSION") {
        notes.push(format!("it was recorded by tfmem {}; other versions may judge otherwise", head.tfmem));
    }
    let mut facts: Facts = end.tail.clone().map_or(head.facts, |tail| tail.facts).into();
    count(&end, &mut facts);
    Ok(Replay { report: analysis.finish(facts), notes })
}

fn notes(end: &End) -> Vec<String> {
    let mut notes = Vec::new();
    let place = format!("the report holds what came before byte {} ({} bytes behind it)", end.stopped_at, end.unread);
    if let Some(error) = &end.error {
        notes.push(format!("the recording cannot be read to its end: {error}; {place}"));
    } else if end.damaged {
        notes.push(format!("the recording is damaged; {place}"));
    } else if end.tail.is_none() {
        notes.push(format!("the recording was cut short; {place}"));
    } else if end.unread > 0 {
        notes.push(format!("the recording is followed by {} bytes that do not belong to it", end.unread));
    }
    if end.unknown > 0 {
        notes.push(format!("{} events are of kinds that this version does not know", end.unknown));
    }
    notes
}

/// What is missing stands among the report's losses, where it cannot be overlooked.
fn count(end: &End, facts: &mut Facts) {
    let mut lost = |kind: &str, count: u64| {
        if count > 0 {
            facts.lost.insert(kind.to_owned(), count);
        }
    };
    lost("recording_truncated", u64::from(end.tail.is_none()));
    lost("recording_damaged_frames", u64::from(end.damaged));
    lost("recording_unread_bytes", if end.tail.is_none() { end.unread } else { 0 });
    lost("recording_events_unknown", end.unknown);
}
