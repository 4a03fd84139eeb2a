//! The probe suite: what tfmem needs of a kernel, tried on this one. `cargo xtask vm` runs it on the host and on each
//! kernel of the matrix, and compares.
//!
//! ```text
//! probes [--filter TEXT] [--also PROGRAM] [--storm CALLS]
//! ```
//! Prints JSON lines, see `line.rs`. What goes wrong is a line, not an exit status: the rest is still to be seen.

mod capabilities;
mod init;
mod ledgers;
mod line;
mod programs;

use std::io::Write as _;

use anyhow::{Context as _, Result, bail};
use line::Line;

/// What to do.
#[derive(Default)]
struct Choice {
    /// Only parts whose name contains it
    filter: String,
    /// A program of the object that is not tfmem's own
    also: Option<String>,
    /// Calls of each mapping storm
    storm: Option<u64>,
}

/// For one that runs it by hand.
const STORM: u64 = 30_000;

fn main() -> Result<()> {
    if std::process::id() == 1 {
        init::run();
    }
    let choice = choice()?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("which kernel is this?")?;
    say(&Line::Kernel { release: release.trim().to_owned() })?;
    for part in parts(&choice) {
        // A kernel's command line ends a word at a blank.
        if !part.name.replace(' ', "_").contains(&choice.filter.replace(' ', "_")) {
            continue;
        }
        match (part.run)() {
            Ok(lines) => lines.iter().try_for_each(say)?,
            Err(error) => say(&Line::Failed { part: part.name, why: format!("{error:#}") })?,
        }
    }
    say(&Line::End)
}

fn say(line: &Line) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    Ok(writeln!(out)?)
}

/// A part of the suite.
struct Part {
    name: String,
    run: Box<dyn FnOnce() -> Result<Vec<Line>>>,
}

impl Part {
    fn new(name: impl Into<String>, run: impl FnOnce() -> Result<Vec<Line>> + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

fn parts(choice: &Choice) -> Vec<Part> {
    let also = choice.also.clone();
    let mut parts = vec![
        Part::new("capabilities", capabilities::ask),
        Part::new("programs", move || programs::try_all(also.as_deref())),
        Part::new("programs by perf events", programs::try_perf_events),
    ];
    parts.extend(ledgers::parts(choice.storm.unwrap_or(STORM)));
    parts
}

fn choice() -> Result<Choice> {
    let mut choice = Choice::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--filter" => choice.filter = value,
            "--also" => choice.also = Some(value),
            "--storm" => choice.storm = Some(value.parse().context("--storm needs a number")?),
            _ => bail!("unknown option {word}"),
        }
    }
    Ok(choice)
}
