//! The real TensorFlow with its GPU side, over the stand-in driver.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::report::model::{BoundaryKind, Cause, Layer, Process};
use tfmem_tests::{
    gpu::{Build, StandIn, Truth},
    look::{self, MIB},
    machine,
    trace::{Trace, Traced},
};

const PINNED_POOL: &str = "gpu_host_bfc";

/// `None`, and said so: there is no such TensorFlow here.
fn python(test: &str) -> Result<Option<PathBuf>> {
    if !machine::can_trace(test) {
        return Ok(None);
    }
    let found = machine::python(&machine::GPU_ENVIRONMENT);
    if found.is_none() {
        machine::skip(test, &format!("{} is not installed: run `cargo xtask setup`", machine::GPU_ENVIRONMENT.name));
    }
    Ok(found)
}

struct Ran {
    traced: Traced,
    truth: Truth,
    /// What TensorFlow says is in use, by device.
    in_use: Value,
}

impl Ran {
    fn process(&self) -> Result<&Process> {
        let with = |p: &&Process| p.frameworks.iter().any(|f| f.name == "tensorflow");
        self.traced.report.processes.iter().find(with).context("no TensorFlow")
    }
}

fn run(python: PathBuf, stand_in: &StandIn, script: &str, settings: &str, env: &[(&str, &str)]) -> Result<Ran> {
    let script = machine::file("programs/gpu").join(script).display().to_string();
    let mut trace = Trace::new()?.options(&["--grace", "100ms"]);
    for (name, value) in env {
        trace = trace.env(name, value);
    }
    let traced = stand_in.trace(trace, [python.display().to_string(), script, settings.to_owned()])?;
    let said = traced.output.stdout.lines().find_map(|line| line.strip_prefix("IN_USE ")).context("no IN_USE line")?;
    let in_use = serde_json::from_str(said)?;
    let truth = stand_in.truth()?.into_values().max_by_key(|truth| truth.lines).context("nothing was taken")?;
    let ran = Ran { traced, truth, in_use };
    ran.truth.ensure_told(ran.process()?)?;
    Ok(ran)
}

/// The classic complaint: the session is closed, and the GPU is as full as before.
#[test]
fn the_pool_stays_when_the_session_is_closed() -> Result<()> {
    const NAME: &str = "the_pool_stays_when_the_session_is_closed";
    let Some(python) = python(NAME)? else { return Ok(()) };
    let ran = run(python, &StandIn::new(Build::FramePointers)?, "session.py", "{}", &[])?;
    let process = ran.process()?;
    let closes = look::boundaries(process, BoundaryKind::SessionClosed);
    let first = closes.first().context("no close")?;
    let pool = look::pool(first, "GPU_0_bfc")?;
    ensure!(pool.memory == Some(Layer::Device) && pool.device == Some(0), "{pool:?}");
    ensure!((pool.regions, pool.regions_bytes) == (1, 2560 * MIB), "{pool:?}");
    // A word for each 256 bytes.
    let tables = pool.handle_tables_bytes.unwrap_or(0);
    ensure!((80 * MIB..81 * MIB).contains(&tables), "tables of handles: {tables}");
    let pinned = look::pool(first, PINNED_POOL)?;
    ensure!(pinned.memory == Some(Layer::Pinned), "{pinned:?}");
    for boundary in closes.into_iter().chain([look::exit(process)?]) {
        let device = boundary.after.devices.first().context("no device")?;
        ensure!(device.bus_id.as_deref() == Some("0000:00:1e.0"), "{device:?}");
        let kept = look::verdict(&boundary.verdicts, Cause::PoolReserve).context("no pool_reserve")?;
        ensure!(kept.summary.contains("of GPU 0 is free inside TensorFlow's pool \"GPU_0_bfc\""), "{}", kept.summary);
        ensure!(kept.gives_back.contains("set_memory_growth"), "{}", kept.gives_back);
        ensure!(look::verdict(&boundary.verdicts, Cause::PinnedReserve).is_some(), "no pinned_reserve");
        ensure!(look::blamed(&boundary.verdicts) == 0, "blamed: {:?}", boundary.verdicts);
    }
    let in_use = look::pool(look::exit(process)?, "GPU_0_bfc")?.in_use_bytes;
    ensure!(ran.in_use["GPU:0"] == in_use, "TensorFlow says {}, the report {in_use}", ran.in_use);
    Ok(())
}
