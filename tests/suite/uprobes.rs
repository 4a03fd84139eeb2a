//! The two ways of putting probes into libraries: they see the same, and say what they could not put in.

use anyhow::{Context as _, Result, ensure};
use tfmem::{
    attach::{
        kernel,
        link::{Attach, Options, Programs, Ring, Stacks, runs},
        plan,
    },
    report::model::Process,
};
use tfmem_common::config;
use tfmem_tests::{
    fixtures::{self, CC, Variant},
    look, machine,
    program::Program,
    trace::{Trace, Traced},
};

fn open(attach: Attach) -> Result<(Programs, Ring)> {
    let layout = kernel::layout().0;
    Programs::load(Options { buffer_bytes: 1 << 20, layout, debug: false, stacks: Stacks::Off, attach })
}

fn has_multi() -> bool {
    open(Attach::Multi).is_ok()
}

#[test]
fn both_ways_see_the_same() -> Result<()> {
    const NAME: &str = "both_ways_see_the_same";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    if !has_multi() {
        machine::skip_optional(NAME, "this kernel has no uprobe-multi links; `cargo xtask vm` does it on others");
        return Ok(());
    }
    let driver = fixtures::get()?.driver("sessions", Variant::Plain);
    let trace = |how| -> Result<Traced> {
        let traced = Trace::new()?.options(&["--attach", how]).run(&driver)?;
        let said = traced.report.capabilities.get("attach");
        ensure!(said.is_some_and(|said| said == how), "{said:?}");
        Ok(traced)
    };
    let (multi, perf) = (trace("multi")?, trace("perf")?);
    let (multi, perf) = (look::tensorflow_process(&multi.report)?, look::tensorflow_process(&perf.report)?);
    ensure!(multi.now.layers == perf.now.layers, "{:?} {:?}", multi.now.layers, perf.now.layers);
    let probes =
        |process: &Process| -> Vec<u64> { process.frameworks.iter().map(|framework| framework.probes).collect() };
    ensure!(probes(multi) == probes(perf), "{:?} {:?}", probes(multi), probes(perf));
    let sessions = |process: &Process| {
        let sessions = &process.handles.sessions;
        (sessions.opened, sessions.closed, sessions.deleted)
    };
    ensure!(sessions(multi) == sessions(perf) && sessions(multi).0 > 0, "{:?} {:?}", sessions(multi), sessions(perf));
    Ok(())
}

/// The kernel takes or refuses a multi link as a whole: the places that can be probed are, and the other one is named.
#[test]
fn a_place_that_the_kernel_refuses() -> Result<()> {
    if !machine::can_trace("a_place_that_the_kernel_refuses") {
        return Ok(());
    }
    let fixtures = fixtures::get()?;
    let library = machine::absolute(&fixtures.library(Variant::Plain, CC))?;
    let points = plan::resolve(&library)?.points;
    let mut spots: Vec<_> = points
        .iter()
        .filter(|point| point.program == "call_enter")
        .map(|point| (point.file_offset, point.cookie))
        .collect();
    let middle = spots.len() / 2;
    ensure!(middle > 1, "{} places", spots.len());
    // Beyond the file's end.
    spots.insert(middle, (library.metadata()?.len().next_multiple_of(4096) + 16, 0));
    let mut fired = Vec::new();
    for attach in [Attach::Auto, Attach::Perf] {
        let (mut programs, _ring) = open(attach)?;
        let refused = programs.attach_spots(&library, "call_enter", &spots);
        let numbers: Vec<usize> = refused.iter().map(|(number, _)| *number).collect();
        ensure!(numbers == [middle], "{attach:?}: {refused:?}");
        ensure!(refused.iter().all(|(_, why)| why.contains("nvalid argument")), "{refused:?}");
        fired.push(runs_of(&mut programs, "call_enter")?);
    }
    ensure!(fired.iter().all(|&runs| runs > 1 && Some(&runs) == fired.first()), "{fired:?}");
    Ok(())
}

/// How often it ran while the stand-in did.
fn runs_of(programs: &mut Programs, name: &str) -> Result<u64> {
    let counting = runs::count()?;
    programs.track(std::process::id(), config::Process::default())?;
    let driver = fixtures::get()?.driver("sessions", Variant::Plain);
    let (program, arguments) = driver.split_first().context("no command")?;
    let output = Program::new(program).args(arguments).run()?;
    drop(counting);
    ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
    programs.runs(name).context("it is not loaded")
}

#[test]
fn a_file_that_is_gone() -> Result<()> {
    if !machine::can_trace("a_file_that_is_gone") {
        return Ok(());
    }
    for attach in [Attach::Auto, Attach::Perf] {
        let (mut programs, _ring) = open(attach)?;
        let refused = programs.attach_spots("/nowhere/lib.so".as_ref(), "call_enter", &[(4096, 1), (8192, 2), (16, 3)]);
        ensure!(refused.len() == 3, "{attach:?}: {refused:?}");
        ensure!(refused.iter().all(|(_, why)| why.contains("No such file")), "{refused:?}");
    }
    Ok(())
}
