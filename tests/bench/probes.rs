//! A probe against an empty one, and what an event costs tfmem itself.

use anyhow::{Context as _, Result};
use tfmem::attach::{
    kernel,
    link::{Options, Programs, Stacks},
    plan,
};
use tfmem_tests::{
    fixtures::{self, FRAMEWORK, Variant},
    machine,
    program::Program,
    trace::Trace,
};

use crate::figure::{Figure, median};

const PAIRS: &str = "500000";

pub fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let fixtures = fixtures::get()?;
    let storm = fixtures.storm();
    let folder = fixtures.library(Variant::Plain, FRAMEWORK).parent().context("the library has no folder")?.to_owned();
    let chunks = || Program::new(&storm).arg(&folder).arg(PAIRS);
    let maps = || Program::new(&storm).arg("map").arg("100000");
    let (mut bare, mut empty, mut traced) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare_map, mut traced_map, mut reading) = (Vec::new(), Vec::new(), Vec::new());
    // From 60 frames deep: without stacks, with the same stack again and again, with another one each time.
    let (mut deep, mut same, mut new) = (Vec::new(), Vec::new(), Vec::new());
    let from_deep = |way: &str, stacks: &str| -> Result<f64> {
        let command = [storm.as_os_str(), folder.as_os_str(), PAIRS.as_ref(), "60".as_ref(), way.as_ref()];
        nanoseconds(&Trace::new()?.options(&["--stacks", stacks]).run(command)?.output.stdout)
    };
    let mut peak = 0.0_f64;
    for _ in 0..rounds {
        bare.push(nanoseconds(&chunks().run()?.stdout)?);
        let attached = EmptyProbe::attach(fixtures)?;
        empty.push(nanoseconds(&chunks().run()?.stdout)?);
        drop(attached);
        let run = Trace::new()?.run([storm.as_path(), folder.as_path(), PAIRS.as_ref()])?;
        traced.push(nanoseconds(&run.output.stdout)?);
        let cost = run.report.cost.as_ref().context("the report has no cost")?;
        reading.push(cost.cpu_ms as f64 * 1e6 / run.report.events as f64);
        peak = peak.max(cost.peak_rss_bytes as f64 / 1048576.0);
        deep.push(from_deep("same", "off")?);
        same.push(from_deep("same", "dwarf")?);
        new.push(from_deep("new", "dwarf")?);
        bare_map.push(nanoseconds(&maps().run()?.stdout)?);
        let run = Trace::new()?.run([storm.as_path(), "map".as_ref(), "100000".as_ref()])?;
        traced_map.push(nanoseconds(&run.output.stdout)?);
    }
    let bare = Figure::new("AddTraceMe, no probe", "ns", median(&mut bare));
    let empty = Figure::new("AddTraceMe, empty probe", "ns", median(&mut empty));
    let traced = Figure::new("AddTraceMe, tfmem", "ns", median(&mut traced)).against(&empty).goal("≤ 1.25 ×");
    let reading =
        Figure::new("tfmem's own CPU time per event", "ns", median(&mut reading)).against(&traced).goal("≤ 0.2 ×");
    let bare_map = Figure::new("mmap or munmap, untraced", "ns", median(&mut bare_map));
    let traced_map = Figure::new("mmap or munmap, tfmem", "ns", median(&mut traced_map)).against(&bare_map);
    let deep = Figure::new("AddTraceMe from 60 frames, tfmem without stacks", "ns", median(&mut deep));
    // One call of two takes a stack: of its cost each shows half.
    let whole = |with: f64| deep.value + 2.0 * (with - deep.value);
    let same = Figure::new("the same with its stack, seen before", "ns", whole(median(&mut same)));
    let same = same.against(&deep).goal("≤ 1.2 ×");
    let new = Figure::new("the same with a new stack of 60 frames", "ns", whole(median(&mut new)));
    let new = new.against(&empty).goal("≤ 8 ×");
    let peak = Figure::new("tfmem's peak memory", "MiB", peak);
    Ok(vec![bare, empty, traced, reading, deep, same, new, bare_map, traced_map, peak])
}

fn nanoseconds(output: &str) -> Result<f64> {
    output.lines().next().and_then(|line| line.trim().parse().ok()).context("the storm said nothing")
}

/// An empty program where tfmem would put its own.
struct EmptyProbe {
    _programs: Programs,
}

impl EmptyProbe {
    fn attach(fixtures: &fixtures::Fixtures) -> Result<Self> {
        let library = fixtures.library(Variant::Plain, FRAMEWORK);
        let plan = plan::resolve(&library)?;
        let point = plan.points.iter().find(|point| point.program == "chunk").context("no place for the probe")?;
        let options = Options { buffer_bytes: 65536, layout: kernel::layout().0, debug: false, stacks: Stacks::Off };
        let (mut programs, _ring) = Programs::open(options)?;
        programs.load_program("nothing")?;
        programs.attach_point(&machine::absolute(&library)?, "nothing", point.file_offset, 0)?;
        Ok(Self { _programs: programs })
    }
}
