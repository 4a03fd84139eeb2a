//! What tfmem costs, measured in one run: `cargo xtask bench`.
//!
//! What is compared runs in turns, round after round, and the ratio is the median of the rounds' own ratios: a machine
//! that is busy for a while slows both sides of a round. Prints a JSON line for each figure, then the table; with
//! `--write FILE` the table and the method go to that file.

mod attach;
mod blocks;
mod document;
mod figure;
mod fleet;
mod probes;
mod reading;
mod snapshot;
mod storm;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use figure::Figure;
use tfmem_tests::{fixtures, machine};

/// How much is measured.
struct Extent {
    /// Rounds of what takes a second, of what takes a quarter of a minute, and of attaching
    rounds: usize,
    long_rounds: usize,
    attaches: usize,
    /// Calls in a round of one probe; pairs of calls in a storm
    calls: u64,
    pairs: u64,
    phase: Duration,
    idle: Duration,
    bpftrace: &'static [usize],
    /// Sizes of processes of which a snapshot is taken, in MiB
    snapshots: &'static [u64],
}

const FULL: Extent = Extent {
    rounds: 7,
    long_rounds: 4,
    attaches: 2,
    calls: 50_000,
    pairs: 1_000_000,
    phase: Duration::from_secs(3),
    idle: Duration::from_secs(10),
    bpftrace: &[2, 21],
    snapshots: &[512, 2048, 8192],
};
/// Enough to see that all of it works.
const QUICK: Extent = Extent {
    rounds: 2,
    long_rounds: 1,
    attaches: 1,
    calls: 10_000,
    pairs: 100_000,
    phase: Duration::from_secs(1),
    idle: Duration::from_secs(2),
    bpftrace: &[2],
    snapshots: &[512],
};

fn main() -> Result<()> {
    let mut write = None;
    let mut extent = FULL;
    let mut quick = false;
    let mut only = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--write" => write = Some(PathBuf::from(args.next().context("--write needs a file")?)),
            "--quick" => (extent, quick) = (QUICK, true),
            "--ledger" => {
                let count = args.next().context("--ledger needs a number")?.parse()?;
                println!("{}", reading::ledger(count)?);
                return Ok(());
            }
            "--fleet" => {
                // Twice the time that the agent's averages are over, and a minute.
                let (settle, phase) = if quick { (2, 5) } else { (75, 60) };
                let figures =
                    fleet::measure(fixtures::get()?, Duration::from_secs(settle), Duration::from_secs(phase))?;
                figures.iter().for_each(|figure| println!("{}", figure.json()));
                println!("\n{}", figure::table(&figures));
                return Ok(());
            }
            "--snapshots" => {
                let python = machine::required_python("tf-2.21.0")?;
                let figures = snapshot::measure(&python, extent.snapshots, extent.rounds)?;
                println!("{}", figure::table(&figures));
                return Ok(());
            }
            "--only" => only = Some(args.next().context("--only needs the name of a part")?),
            // Cargo passes it to every bench.
            "--bench" => {}
            other => bail!("unknown option {other}"),
        }
    }
    let machine = document::Machine::look();
    ensure!(only.is_none() || write.is_none(), "a part alone is not written to a file");
    let sections = measure(&extent, only.as_deref())?;
    let all = || sections.iter().flat_map(|section| &section.figures);
    for section in &sections {
        println!("\n{}\n\n{}", section.title, figure::table(&section.figures));
    }
    for missed in all().filter_map(Figure::missed) {
        println!("MISSED {missed}");
    }
    if let Some(path) = write {
        std::fs::write(&path, document::text(&sections, &machine, quick))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Figures that belong together.
struct Section {
    title: &'static str,
    /// How it was measured.
    method: &'static str,
    figures: Vec<Figure>,
}

/// Names of the parts.
const PARTS: [&str; 6] = ["probes", "work", "attach", "programs", "snapshot", "whole"];

fn measure(extent: &Extent, only: Option<&str>) -> Result<Vec<Section>> {
    ensure!(only.is_none_or(|only| PARTS.contains(&only)), "the parts are {}", PARTS.join(", "));
    let wanted = |part| only.is_none_or(|only| only == part);
    let fixtures = fixtures::get()?;
    let python = machine::required_python("tf-2.21.0")?;
    let mut sections = Vec::new();
    let mut take = |title, method, figures: Vec<Figure>| {
        for figure in &figures {
            println!("{}", figure.json());
        }
        sections.push(Section { title, method, figures });
    };
    let mut trap_ns = None;
    if wanted("probes") || wanted("work") {
        let (figures, chunks) = probes::measure(fixtures, extent.rounds, extent.calls)?;
        trap_ns = chunks.empty.median();
        take("A probe", document::PROBE, figures);
        if wanted("work") {
            let figures = reading::measure(fixtures, &chunks, extent.rounds, extent.pairs)?;
            take("tfmem's own work", document::READING, figures);
        }
    }
    if wanted("attach") {
        let mut figures = attach::measure(&python, extent.attaches, extent.idle)?;
        figures.extend(attach::bpftrace(&python, extent.bpftrace)?);
        take("Attaching and leaving", document::ATTACH, figures);
    }
    if wanted("programs") {
        take("Programs", document::PROGRAMS, blocks::measure(&python, extent.long_rounds, extent.phase, trap_ns)?);
    }
    if wanted("snapshot") {
        take("A snapshot", snapshot::METHOD, snapshot::measure(&python, extent.snapshots, extent.rounds)?);
    }
    if wanted("whole") {
        take("A program from start to end", document::WHOLE, reading::whole_program(&python)?);
    }
    Ok(sections)
}
