//! From the options to a running trace, and from its end to a written report.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write},
};

use anyhow::Context as _;

use super::{
    args::{Color, Common, Format},
    exit::Failure,
};
use crate::{
    live::{self, Capabilities, Live, sink::Sink},
    report::{self, json, model::Report, text},
    retention,
    target::guard::Guard,
};

/// # Errors
/// When the kernel refuses the programs.
pub fn begin(options: &Common, guard: Option<Guard>) -> Result<(Live, Capabilities), Failure> {
    let analysis = retention::Analysis::new(retention::Options {
        grace_ns: options.grace.as_nanos() as u64,
        min_bytes: options.min_bytes.as_u64(),
    });
    let sink = Sink::start(analysis)?;
    let live = live::Options {
        grace: options.grace,
        buffer_bytes: u32::try_from(options.buffer.as_u64()).unwrap_or(1 << 31),
        debug_bpf: options.debug_bpf,
        cache: None,
        symbols: options.boundary.clone(),
    };
    Ok(Live::new(live, sink, guard)?)
}

/// # Errors
/// When the report cannot be written. A closed pipe is no error: the reader had enough.
pub fn write(options: &Common, report: &Report) -> Result<(), Failure> {
    let result = match &options.report_file {
        Some(path) => {
            let file = File::create(path).with_context(|| format!("write the report to {}", path.display()))?;
            print(options, report, false, io::BufWriter::new(file))
        }
        None => {
            let stdout = io::stdout();
            let terminal = stdout.is_terminal();
            print(options, report, terminal, io::BufWriter::new(stdout.lock()))
        }
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("write the report")?),
    }
}

fn print(options: &Common, report: &Report, terminal: bool, mut out: impl Write) -> io::Result<()> {
    match options.format {
        Format::Json => json::write(report, &mut out)?,
        Format::Text => {
            let color = match options.color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
            };
            out.write_all(text::render(report, text::Style { colour: color, ..text::Style::default() }).as_bytes())?;
        }
    }
    out.flush()
}

pub fn above_limit(options: &Common, report: &Report) -> bool {
    options.fail_above.is_some_and(|limit| report::fail_above(report, limit.as_u64()))
}
