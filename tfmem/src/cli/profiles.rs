//! What `flame` and `export` have in common: a report from a file, something written to another.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::Path,
};

use anyhow::Context as _;

use super::exit::Failure;
use crate::{
    event::Event,
    profile::{
        Profile, Selection, Which,
        moment::{self, Moment, Of},
    },
    recording::{
        reader::Reader,
        replay::{self, Choices},
    },
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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    Survivors(Selection),
    Live(Moment, Of),
    Ever(Of),
}

impl Wanted {
    /// Another boundary.
    #[must_use]
    pub const fn at(self, which: Which) -> Self {
        match self {
            Self::Survivors(selection) => Self::Survivors(Selection { which, ..selection }),
            other => other,
        }
    }

    /// The same of all processes.
    #[must_use]
    pub const fn of_all(self) -> Self {
        match self {
            Self::Survivors(selection) => Self::Survivors(Selection { pid: None, ..selection }),
            Self::Live(moment, of) => Self::Live(moment, Of { pid: None, ..of }),
            Self::Ever(of) => Self::Ever(Of { pid: None, ..of }),
        }
    }
}

/// Of the file at `path`, whose report this is.
///
/// # Errors
/// When there is no such boundary, or the file has no events.
pub fn profile(report: &Report, wanted: &Wanted, path: &Path) -> Result<Profile, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let (mut held, of) = match *wanted {
        Wanted::Survivors(selection) => return Profile::of(report, &selection).map_err(|error| failed(&error)),
        Wanted::Ever(of) => (moment::ever(events(path)?, of), of),
        Wanted::Live(Moment::After(time), of) => {
            (moment::live(events(path)?, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), of), of)
        }
        Wanted::Live(Moment::Peak, of) => {
            let at = moment::peak(events(path)?, of).unwrap_or(0);
            (moment::live(events(path)?, at, of), of)
        }
    };
    symbols::name_stacks_here(&mut held.stacks);
    Profile::of_moment(report, &held, of).map_err(|error| failed(&error))
}

/// The events of a recording, once more.
fn events(path: &Path) -> Result<impl Iterator<Item = Event>, Failure> {
    let open = || Reader::open(fs::File::open(path)?);
    open().map_err(|error| {
        let path = path.display();
        Failure::usage(format!("{path}: only a recording has what was alive at other moments than boundaries: {error}"))
    })
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
