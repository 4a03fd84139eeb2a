//! `tfmem flame RECORDING -o OUT.svg`

use super::{args::Flame, exit::Failure, profiles};
use crate::{
    export::flame,
    profile::{Selection, difference},
};

/// # Errors
/// When the recording cannot be read, has no such boundary, or the picture not be written.
pub fn flame(args: &Flame) -> Result<u8, Failure> {
    let report = profiles::report(&args.recording)?;
    let profile = profiles::profile(&report, &args.survivors.selection(), &args.recording)?;
    let weight = args.weight.into();
    if args.diff.is_none() && args.diff_boundary.is_none() {
        profiles::write(&args.output, |out| flame::write(&profile, weight, out))?;
        return Ok(0);
    }
    let which = args.diff_boundary.unwrap_or(args.survivors.boundary);
    // A pid means nothing in another recording.
    let pid = args.survivors.pid.filter(|_| args.diff.is_none());
    let selection = Selection { which, pid, ..args.survivors.selection() };
    let before = match &args.diff {
        Some(path) => profiles::profile(&profiles::report(path)?, &selection, path)?,
        None => profiles::profile(&report, &selection, &args.recording)?,
    };
    let difference = difference(&before, &profile, weight);
    profiles::write(&args.output, |out| flame::write_difference(&difference, out))?;
    Ok(0)
}
