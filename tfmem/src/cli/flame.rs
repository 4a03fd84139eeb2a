//! `tfmem flame RECORDING -o OUT.svg`

use super::{args::Flame, exit::Failure, profiles};
use crate::{export::flame, profile::difference};

/// # Errors
/// When the recording cannot be read, has no such boundary, or the picture not be written.
pub fn flame(args: &Flame) -> Result<u8, Failure> {
    let report = profiles::report(&args.recording)?;
    let wanted = args.survivors.wanted();
    let profile = profiles::profile(&report, &wanted, &args.recording)?;
    let weight = args.weight.into();
    if args.diff.is_none() && args.diff_boundary.is_none() {
        profiles::write(&args.output, |out| flame::write(&profile, weight, out))?;
        return Ok(0);
    }
    let other = args.diff_boundary.map_or(wanted, |which| wanted.at(which));
    let before = match &args.diff {
        // A pid means nothing in another recording.
        Some(path) => profiles::profile(&profiles::report(path)?, &other.of_all(), path)?,
        None => profiles::profile(&report, &other, &args.recording)?,
    };
    let difference = difference(&before, &profile, weight);
    profiles::write(&args.output, |out| flame::write_difference(&difference, out))?;
    Ok(0)
}
