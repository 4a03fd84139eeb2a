//! NVIDIA's own driver library, where there is no GPU: every call is found, and one that fails leaves nothing behind.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use tfmem::{attach::plan, catalogue::gpu::ENTRIES};
use tfmem_tests::{machine, trace::Trace};

/// Younger than Debian's driver.
const YOUNGER: &[&str] = &["cuCtxCreate_v4"];

fn driver(test: &str) -> Option<PathBuf> {
    let path = machine::driver();
    if path.is_none() {
        machine::skip_optional(test, "NVIDIA's driver library could not be had");
    }
    path
}

#[test]
fn every_call_of_the_catalogue_is_there() -> Result<()> {
    let Some(driver) = driver("every_call_of_the_catalogue_is_there") else { return Ok(()) };
    let plan = plan::resolve(&driver)?;
    ensure!(plan.library.version.is_some(), "the file is called after its version: {}", plan.library.path);
    for name in ENTRIES.iter().flat_map(|entry| entry.names).filter(|name| !YOUNGER.contains(name)) {
        let point = plan.points.iter().find(|point| point.symbol == **name);
        let point = point.with_context(|| format!("{name} is not there"))?;
        ensure!(point.cheap, "{name}: {} at +{}: {}", point.instruction, point.delta, point.why);
    }
    Ok(())
}

/// What `cuGetProcAddress` hands out are the functions that have the probes.
#[test]
fn calls_that_fail_leave_nothing() -> Result<()> {
    const NAME: &str = "calls_that_fail_leave_nothing";
    let Some(driver) = driver(NAME) else { return Ok(()) };
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let newest = machine::ENVIRONMENTS.last().context("no environment")?;
    let python = machine::required_python(newest.name)?.display().to_string();
    let mut command =
        vec![python, machine::file("programs/gpu/no_gpu.py").display().to_string(), driver.display().to_string()];
    let names: Vec<String> = plan::resolve(&driver)?.points.into_iter().map(|point| point.symbol).collect();
    command.extend(names);
    let traced = Trace::new()?.options(&["--grace", "50ms"]).run(command)?;
    let line =
        traced.output.stdout.lines().find_map(|line| line.strip_prefix("HANDED_OUT ")).context("no HANDED_OUT")?;
    let (handed_out, others) = line.split_once(' ').context("two numbers")?;
    ensure!(handed_out.parse::<u64>()? > 50 && others == "0", "cuGetProcAddress: {line}");

    let with_driver = |p: &&tfmem::report::model::Process| p.frameworks.iter().any(|f| f.name == "cuda");
    let process = traced.report.processes.iter().find(with_driver).context("no probe in the driver")?;
    let layers = &process.now.layers;
    ensure!([layers.device, layers.pinned, layers.managed] == [Some(0); 3], "{layers:?}");
    ensure!(traced.report.losses.get("frees_unpaired") == Some(&0), "{:?}", traced.report.losses);
    Ok(())
}
