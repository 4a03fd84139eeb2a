//! What `flame` and `export` have in common: a report from a file, something written to another.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::Path,
};

use anyhow::Context as _;

use super::exit::Failure;
use crate::{
    profile::{Profile, Selection},
    recording::replay::{self, Choices},
    report::model::{Report, SCHEMA},
    symbols,
};

/// Groups of survivors of one boundary: more are not told apart.
const MOST_ROWS: usize = 100_000;

/// Of a recording, with every group of survivors; or read from JSON, as it is.
///
/// # Errors
/// When the file is neither.
pub fn report(path: &Path) -> Result<Report, Failure> {
    let mut report = read(path)?;
    symbols::name_here(&mut report);
    Ok(report)
}

fn read(path: &Path) -> Result<Report, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let mut file = fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut first = [0];
    if file.read(&mut first).map_err(|error| unreadable(&error))? == 1 && first == *b"{" {
        let text = fs::read(path).map_err(|error| unreadable(&error))?;
        let report: Report = serde_json::from_slice(&text)
            .map_err(|error| unreadable(&format_args!("not a report of this version: {error}")))?;
        if report.schema != SCHEMA {
            return Err(unreadable(&format_args!("its schema is {:?}, not {SCHEMA:?}", report.schema)));
        }
        return Ok(report);
    }
    let choices = Choices { min_bytes: Some(0), max_rows: Some(MOST_ROWS), ..Choices::default() };
    let replay = replay::file(path, choices).map_err(|error| unreadable(&error))?;
    for note in &replay.notes {
        log::warn!("{}: {note}", path.display());
    }
    Ok(replay.report)
}

/// # Errors
/// When there is no such boundary.
pub fn profile(report: &Report, selection: &Selection, path: &Path) -> Result<Profile, Failure> {
    Profile::of(report, selection).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Writes a file that is complete, or none. `-`: to stdout, where a closed pipe is no error.
///
/// # Errors
/// When it cannot be made or written.
pub fn write(path: &Path, make: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    make(&mut bytes).map_err(|error| Failure::usage(error.to_string()))?;
    if path == Path::new("-") {
        return match io::stdout().lock().write_all(&bytes) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        };
    }
    Ok(fs::write(path, &bytes).with_context(|| format!("write {}", path.display()))?)
}
