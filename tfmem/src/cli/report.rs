//! `tfmem report RECORDING`

use super::{
    args::Report,
    exit::{ABOVE_LIMIT, Failure},
    output,
};
use crate::{
    recording::replay::{self, Choices},
    symbols,
};

/// # Errors
/// When the recording cannot be read at all, or the report not be written.
pub fn report(args: &Report) -> Result<u8, Failure> {
    let choices = Choices {
        grace_ns: args.grace.map(|grace| grace.as_nanos() as u64),
        min_bytes: args.min_bytes.map(|bytes| bytes.as_u64()),
        max_rows: None,
    };
    let mut replay = replay::file(&args.recording, choices)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", args.recording.display())))?;
    for note in &replay.notes {
        log::warn!("{}: {note}", args.recording.display());
    }
    symbols::name_here(&mut replay.report);
    output::write(&args.show, &replay.report)?;
    Ok(if output::above_limit(&args.show, &replay.report) { ABOVE_LIMIT } else { 0 })
}
