//! `tfmem doctor`

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;

use super::{
    args::{Doctor, Format},
    exit::{FAILED, Failure, USAGE},
    trace,
};
use crate::{
    doctor::{self, Findings, check::Verdict},
    report::text::Style,
};

/// # Errors
/// When a process or a file that was asked for cannot be examined, or the findings cannot be written.
pub fn doctor(args: &Doctor) -> Result<u8, Failure> {
    let mut libraries = Vec::new();
    for &pid in &args.pids {
        trace::check(pid)?;
        libraries.push(doctor::mapped(pid));
    }
    for file in &args.libraries {
        libraries.push(doctor::named(file).map_err(Failure::usage)?);
    }
    let findings = doctor::examine(libraries);
    match print(args, &findings) {
        // The reader had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other.context("write the findings")?,
    }
    Ok(status(&findings))
}

fn print(args: &Doctor, findings: &Findings) -> io::Result<()> {
    let stdout = io::stdout();
    let colour = args.color.wanted(stdout.is_terminal());
    let text = match args.format {
        Format::Json => serde_json::to_string_pretty(findings)? + "\n",
        Format::Text => doctor::render(findings, Style { colour, ..Style::default() }),
    };
    let mut out = stdout.lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn status(findings: &Findings) -> u8 {
    match findings.verdict {
        Verdict::NeedsPrivilege => USAGE,
        Verdict::Unable => FAILED,
        Verdict::Ready if findings.libraries.iter().any(|examined| examined.useless) => FAILED,
        Verdict::Ready => 0,
    }
}
