//! From the options to a running trace, and from its end to a written report.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal as _, Write},
    path::Path,
};

use anyhow::Context as _;

use super::{
    args::{Attach, Common, Format, Show, Stacks},
    exit::Failure,
    privilege,
};
use crate::{
    attach::{link, memory::Backend},
    live::{self, Capabilities, Live, sink::Sink},
    recording::file,
    report::{self, json, model::Report, text},
    retention, symbols,
    target::guard::Guard,
};

/// The kernel's buffer: a page at least, and less than the machine has.
const BUFFER: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

/// # Errors
/// When the kernel refuses the programs.
pub fn begin(options: &Common, guard: Option<Guard>) -> Result<(Live, Capabilities), Failure> {
    let buffer = options.buffer.as_u64();
    if !BUFFER.contains(&buffer) {
        return Err(Failure::usage(format!("--buffer {}: from 64 KiB to 1 GiB", options.buffer)));
    }
    let judged = retention::Options {
        grace_ns: options.grace.as_nanos() as u64,
        min_bytes: options.min_bytes.as_u64(),
        ..retention::Options::default()
    };
    let analysis = retention::Analysis::new(judged);
    // Before anything else: a file that cannot be made is no reason to start a program in vain.
    if let Some(path) = &options.show.report_file {
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        open.map_err(|error| Failure::usage(format!("cannot write the report to {}: {error}", path.display())))?;
    }
    let recording = options.output.as_deref().map(create).transpose()?;
    let sink = Sink::start(analysis)?;
    let live = live::Options {
        grace: options.grace,
        buffer_bytes: buffer as u32,
        debug_bpf: options.debug_bpf,
        memory: if options.snapshot_only { vec![Backend::Poll] } else { privilege::ways(options.mm)? },
        cache: None,
        symbols: options.boundary.clone(),
        stacks: match options.stacks {
            Stacks::Dwarf => link::Stacks::Dwarf,
            Stacks::Fp => link::Stacks::FramePointers,
            Stacks::Copy => link::Stacks::Copy,
            Stacks::Off => link::Stacks::Off,
        },
        attach: match options.attach {
            Attach::Auto => link::Attach::Auto,
            Attach::Multi => link::Attach::Multi,
            Attach::Perf => link::Attach::Perf,
        },
        rare: None,
        snapshot_only: options.snapshot_only,
    };
    let (mut live, capabilities) = Live::new(live, sink, guard)?;
    if let Some(file) = recording {
        live.record(file, judged, &capabilities)?;
    }
    Ok((live, capabilities))
}

/// Ends a trace: the report first, then the probes go out. `true`: `--fail-above` was met.
///
/// # Errors
/// When the ledger's thread died or the report cannot be written.
pub fn end(live: Live, facts: Capabilities, options: &Show) -> Result<bool, Failure> {
    let (mut report, attached) = live.finish(facts)?;
    symbols::name_here(&mut report);
    write(options, &report)?;
    drop(attached);
    Ok(above_limit(options, &report))
}

fn create(path: &Path) -> Result<File, Failure> {
    file::create(path).map_err(|error| Failure::usage(format!("cannot record to {}: {error}", path.display())))
}

/// # Errors
/// When the report cannot be written. A closed pipe is no error: the reader had enough.
pub fn write(options: &Show, report: &Report) -> Result<(), Failure> {
    let result = match &options.report_file {
        Some(path) => {
            let written = File::create(path).and_then(|file| print(options, report, false, io::BufWriter::new(file)));
            if written.is_err() {
                // The trace cannot be had again: better in the wrong place than nowhere.
                let _ = to_stdout(options, report);
            }
            written.with_context(|| format!("write the report to {}", path.display()))?;
            Ok(())
        }
        None => to_stdout(options, report),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("write the report")?),
    }
}

fn to_stdout(options: &Show, report: &Report) -> io::Result<()> {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    print(options, report, terminal, io::BufWriter::new(stdout.lock()))
}

fn print(options: &Show, report: &Report, terminal: bool, mut out: impl Write) -> io::Result<()> {
    match options.format {
        Format::Json => json::write(report, &mut out)?,
        Format::Text => {
            let style = text::Style { colour: options.color.wanted(terminal), ..text::Style::default() };
            out.write_all(text::render(report, style).as_bytes())?;
        }
    }
    out.flush()
}

/// A gate that cannot see must not open: a blind report counts as one above the limit.
pub fn above_limit(options: &Show, report: &Report) -> bool {
    let Some(limit) = options.fail_above else { return false };
    if report::blind(report) {
        log::warn!("--fail-above: the report is blind (see BLIND), so that the limit cannot be vouched for");
        return true;
    }
    report::fail_above(report, limit.as_u64())
}
