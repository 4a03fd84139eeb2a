//! Every family of the driver's calls, at random.

use anyhow::{Context as _, Result, ensure};
use tfmem_tests::{
    fixtures,
    gpu::{Build, SURVIVORS, StandIn},
    look, machine,
    trace::Trace,
};

/// Families, threads
const ALL: &[(&str, &str)] = &[("pahsvi", "2"), ("pahsvicr", "4")];

/// One by one, with --full.
const RUNS: &[(&str, &str)] = &[
    ("p", "1"),
    ("a", "1"),
    ("h", "1"),
    ("s", "2"),
    ("v", "2"),
    ("pahsvic", "4"),
    // The primary context of one device is reset at the end.
    ("pahsr", "3"),
];

#[test]
fn what_is_taken_is_what_the_driver_gave() -> Result<()> {
    const NAME: &str = "what_is_taken_is_what_the_driver_gave";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    // A million calls in all with --full.
    let (runs, calls) = if machine::long() { (RUNS, 80_000) } else { (ALL, 2_000) };
    for (i, (families, threads)) in runs.iter().enumerate() {
        let build = if i % 2 == 0 { Build::FramePointers } else { Build::Bare };
        same(build, families, calls, threads, i).with_context(|| format!("{families}, {threads} threads"))?;
    }
    Ok(())
}

fn same(build: Build, families: &str, calls: u64, threads: &str, seed: usize) -> Result<()> {
    let stand_in = StandIn::new(build)?.with("STANDIN_GPUS", 2).with("STANDIN_FAIL", 97);
    let command = [fixtures::get()?.gpu().display().to_string(), families.to_owned(), calls.to_string()];
    let command = command.into_iter().chain([(*threads).to_owned(), (seed + 1).to_string()]);
    let traced = stand_in
        .trace(Trace::new()?.options(&["--min-bytes", "1", "--grace", "50ms", "--buffer", "64MiB"]), command)?;
    ensure!(traced.report.losses.get("events_dropped") == Some(&0), "{:?}", traced.report.losses);
    let all = stand_in.truth()?;
    ensure!(!all.is_empty(), "the driver gave nothing");
    for (pid, truth) in all {
        let process =
            traced.report.processes.iter().find(|p| p.pid == pid).with_context(|| format!("no process {pid}"))?;
        truth.ensure_told(process).with_context(|| format!("process {pid}, {} lines", truth.lines))?;
        let exit = look::exit(process)?;
        for (layer, kinds) in SURVIVORS {
            let (found, expected) = (look::survivors(exit, layer), truth.of(kinds));
            ensure!(found == expected, "{layer:?}: {found:?} survive, the driver gave {expected:?}");
        }
    }
    Ok(())
}
