//! Each hot probe against an empty one on the same instruction of the same running program.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tfmem::attach::{
    kernel,
    link::{Attach, Options, Programs, Ring, Stacks, Tracepoint},
    memory::SYSTEM_CALLS,
    plan::{self, Plan},
    tracefs,
};
use tfmem_common::config::Process;
use tfmem_tests::{
    fixtures::{CC, FRAMEWORK, Fixtures, Variant},
    machine,
};

use crate::{
    figure::{Figure, Goal, Series},
    storm::Storm,
};

/// tfmem's own default.
const BUFFER: u32 = 16 << 20;

/// What the storm is asked for, and the probes that it meets then.
struct Case {
    name: &'static str,
    what: &'static str,
    calls: u64,
    probes: Probes,
    /// A goal for it: the others are measured too.
    goal: bool,
    /// Measured without being traced, too; else with a probe that sends a record and does nothing else.
    gate: bool,
    /// The empty probe is measured by a perf event, too.
    perf: bool,
}

/// Which programs go on the places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Empty,
    RecordOnly,
    Own,
}

enum Probes {
    Uprobes { library: PathBuf, points: Vec<Place> },
    Tracepoints,
}

/// Program, place in the file, cookie.
type Place = (String, u64, u64);

/// What one case showed, and the records that it left.
pub struct Chunks {
    pub bare: Series,
    pub empty: Series,
    pub traced: Series,
    pub records: Vec<Vec<u8>>,
}

pub fn measure(fixtures: &Fixtures, rounds: usize, scale: u64) -> Result<(Vec<Figure>, Chunks)> {
    let mut storm = Storm::start(fixtures)?;
    let mut figures = Vec::new();
    let mut chunks = None;
    for case in cases(fixtures, scale)? {
        let (more, own) = one(&mut storm, &case, rounds).with_context(|| case.name)?;
        figures.extend(more);
        // With the op's name: what TensorFlow's own threads cause.
        if case.what == "noted" {
            chunks = Some(own);
        }
    }
    Ok((figures, chunks.context("no chunks")?))
}

fn cases(fixtures: &Fixtures, scale: u64) -> Result<Vec<Case>> {
    let resolve = |variant, name| -> Result<(PathBuf, Plan)> {
        let library = machine::absolute(&fixtures.library(variant, name))?;
        let plan = plan::resolve(&library)?;
        Ok((library, plan))
    };
    let uprobes = |(library, plan): &(PathBuf, Plan), wanted: &dyn Fn(&plan::Point) -> bool| -> Result<Probes> {
        let points = plan.points.iter().filter(|point| wanted(point));
        let points: Vec<Place> = points.map(|p| (p.program.clone(), p.file_offset, p.cookie)).collect();
        ensure!(!points.is_empty(), "no place for the probe in {}", library.display());
        Ok(Probes::Uprobes { library: library.clone(), points })
    };
    let plain = resolve(Variant::Plain, FRAMEWORK)?;
    let inlined = resolve(Variant::Inlined, FRAMEWORK)?;
    let cc = resolve(Variant::Plain, CC)?;
    let case = |name, what, probes, goal| Case { name, what, calls: scale, probes, goal, gate: true, perf: false };
    let chunk = || uprobes(&plain, &|point| point.program == "chunk");
    // The library has the short form twice: as it is, and as part of others. Only the first is called here.
    let short = |point: &plan::Point| point.program == "chunk_short";
    let mut call = uprobes(&cc, &|point| point.symbol == "TF_CloseSession")?;
    if let Probes::Uprobes { points, .. } = &mut call {
        // As a call that wakes nobody: those that do are rare, and this one does nothing but to be called.
        points.iter_mut().for_each(|(_, _, cookie)| *cookie &= !(1 << 32));
    }
    Ok(vec![
        Case { gate: false, perf: true, ..case("chunk, no op named", "chunk", chunk()?, true) },
        case("chunk, op named in every second call", "noted", chunk()?, true),
        case("chunk, short form", "short", uprobes(&inlined, &short)?, true),
        case(
            "heap block, its entry, return and free",
            "heap",
            uprobes(&plain, &|point| point.program.starts_with("aligned"))?,
            true,
        ),
        Case { perf: true, ..case("call, its entry and return", "call", call, true) },
        case("mmap or munmap, its entry and return", "map", Probes::Tracepoints, true),
    ])
}

/// In each round, one after the other: no probe, the empty one, tfmem's for a stranger or one that only sends a record,
/// tfmem's.
fn one(storm: &mut Storm, case: &Case, rounds: usize) -> Result<(Vec<Figure>, Chunks)> {
    let series = |how: &str| Series::new(format!("{}: {how}", case.name), "ns");
    let mut bare = series("no probe");
    let mut empty = series("empty probe");
    let mut empty_perf = series("empty probe by a perf event for each place (`--attach perf`)");
    let mut foreign = series("of a process that is not traced");
    let mut record = series("a probe that only sends a record with the time");
    let mut traced = series("tfmem");
    let mut records = Vec::new();
    for _ in 0..rounds {
        bare.push(storm.call(case.what, case.calls * 10)?);
        let attached = attach(&case.probes, How::Empty, Attach::Auto)?;
        empty.push(storm.call(case.what, case.calls)?);
        drop(attached);
        if case.perf {
            let attached = attach(&case.probes, How::Empty, Attach::Perf)?;
            empty_perf.push(storm.call(case.what, case.calls)?);
            drop(attached);
        }
        if !case.gate {
            let (programs, mut ring) = attach(&case.probes, How::RecordOnly, Attach::Auto)?;
            record.push(drained(&mut ring, || storm.call(case.what, case.calls))?.0);
            drop(programs);
        }
        let (mut programs, mut ring) = attach(&case.probes, How::Own, Attach::Auto)?;
        foreign.push(storm.call(case.what, case.calls)?);
        ensure!(ring.next().is_none(), "a process that is not traced was traced");
        let annotations = [storm.annotation, tfmem_common::config::Annotation::default()];
        programs.track(storm.pid(), Process { annotations, ..Process::default() })?;
        let nanoseconds;
        (nanoseconds, records) = drained(&mut ring, || storm.call(case.what, case.calls))?;
        traced.push(nanoseconds);
        ensure!(records.len() as u64 >= case.calls / 2, "{} records of {} calls", records.len(), case.calls);
        let lost: u64 = programs.counters().iter().sum();
        ensure!(lost == 0, "{lost} events were lost: {:?}", programs.counters());
    }
    let measured = traced.against(&empty);
    let mut figures =
        vec![bare.figure(), empty.figure(), if case.goal { measured.goal(Goal::Ratio(1.25)) } else { measured }];
    if case.perf {
        figures.push(empty_perf.against(&empty));
    }
    if case.gate {
        figures.push(foreign.against(&empty).goal(Goal::Ratio(1.25)));
    } else {
        figures.push(record.against(&empty));
    }
    Ok((figures, Chunks { bare, empty, traced, records }))
}

/// Reads the buffer as tfmem does while `work` runs.
fn drained<T>(ring: &mut Ring, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Vec<u8>>)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut records = Vec::new();
            loop {
                // Asked before the last look.
                let last = over.load(Ordering::Acquire);
                while let Some(item) = ring.next() {
                    records.push(item.to_vec());
                }
                if last {
                    return records;
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        let done = work();
        over.store(true, Ordering::Release);
        let records = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        Ok((done?, records))
    })
}

fn attach(probes: &Probes, how: How, attach: Attach) -> Result<(Programs, Ring)> {
    let layout = kernel::layout().0;
    let options = Options { buffer_bytes: BUFFER, layout, debug: false, stacks: Stacks::Off, attach };
    let (mut programs, ring) = Programs::open(options)?;
    match probes {
        Probes::Uprobes { library, points } => attach_uprobes(&mut programs, library, points, how)?,
        Probes::Tracepoints => tracefs::with_tracefs(|| attach_tracepoints(&mut programs, how))?,
    }
    Ok((programs, ring))
}

fn attach_uprobes(programs: &mut Programs, library: &Path, points: &[Place], how: How) -> Result<()> {
    let mut loaded = Vec::new();
    for (name, offset, cookie) in points {
        let returns = name.ends_with("_ret") || name.ends_with("_leave");
        let name = match (how, returns) {
            (How::Empty, true) => "nothing_ret",
            (How::Empty, false) => "nothing",
            (How::RecordOnly, _) => "record_only",
            (How::Own, _) => name.as_str(),
        };
        if !loaded.contains(&name) {
            programs.load_program(name)?;
            loaded.push(name);
        }
        programs.attach_point(library, name, *offset, *cookie)?;
    }
    Ok(())
}

fn attach_tracepoints(programs: &mut Programs, how: How) -> Result<()> {
    let maps = SYSTEM_CALLS.iter().filter(|(_, _, event)| event.ends_with("map"));
    let points: Vec<Tracepoint> = maps
        .map(|&(name, category, event)| (if how == How::Own { name } else { "nothing_tracepoint" }, category, event))
        .collect();
    for name in points.iter().map(|(name, ..)| *name).collect::<BTreeSet<_>>() {
        programs.load_program(name)?;
    }
    programs.attach_tracepoints(&points)?;
    Ok(())
}
