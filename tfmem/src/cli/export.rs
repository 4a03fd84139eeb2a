//! `tfmem export RECORDING --format FORMAT -o FILE`

use super::{
    args::{Export, ExportFormat},
    exit::Failure,
    profiles,
};
use crate::export::{folded, pprof, speedscope, trace_events};

/// # Errors
/// When the recording cannot be read, has no such boundary, or the file not be written.
pub fn export(args: &Export) -> Result<u8, Failure> {
    let report = profiles::report(&args.recording)?;
    let profile = || profiles::profile(&report, &args.survivors.wanted(), &args.recording);
    match args.format {
        ExportFormat::Perfetto => {
            profiles::write(&args.output, |out| trace_events::write(&report, args.survivors.pid, out))?;
        }
        ExportFormat::Folded => {
            let profile = profile()?;
            profiles::write(&args.output, |out| folded::write(&profile, args.weight.into(), out))?;
        }
        ExportFormat::Pprof => {
            let profile = profile()?;
            profiles::write(&args.output, |out| pprof::write(&profile, out))?;
        }
        ExportFormat::Speedscope => {
            let profile = profile()?;
            profiles::write(&args.output, |out| speedscope::write(&profile, out))?;
        }
    }
    Ok(0)
}
