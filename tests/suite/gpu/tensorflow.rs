//! The real TensorFlow with its GPU side, over the stand-in driver.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::report::model::{Boundary, BoundaryKind, Cause, Layer, Process};
use tfmem_tests::{
    gpu::{Build, ON_DEVICE, StandIn, Truth},
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

fn run(python: &Path, stand_in: &StandIn, script: &str, settings: &str, env: &[(&str, &str)]) -> Result<Ran> {
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

/// The program of sessions, with one that stays open.
const SESSIONS: &str = "session.py";

/// A way to have TensorFlow take memory.
struct Way {
    name: &'static str,
    script: &'static str,
    settings: &'static str,
    env: &'static [(&'static str, &'static str)],
    stand_in: &'static [(&'static str, u64)],
    /// Pieces of GPU memory at the end: TensorFlow 2.18.1 takes just these.
    pieces: &'static [u64],
}

const PLAIN: Way = Way {
    name: "default",
    script: SESSIONS,
    settings: r#"{"held": 1}"#,
    env: &[],
    stand_in: &[],
    pieces: &[2560 * MIB],
};

const ASYNC: Way =
    Way { name: "async", env: &[("TF_GPU_ALLOCATOR", "cuda_malloc_async")], pieces: &[3 * MIB, 1028], ..PLAIN };

/// Those left to `--full`.
const WAYS: &[Way] = &[
    PLAIN,
    Way {
        name: "growth",
        settings: r#"{"held": 1, "allow_growth": true}"#,
        pieces: &[2 * MIB, 4 * MIB, 16 * MIB],
        ..PLAIN
    },
    Way {
        name: "a quarter",
        settings: r#"{"held": 1, "per_process_gpu_memory_fraction": 0.25}"#,
        pieces: &[1024 * MIB],
        ..PLAIN
    },
    Way {
        name: "virtual devices",
        settings: r#"{"held": 1, "virtual": [256, 128], "devices": ["/GPU:0", "/GPU:1"], "asked": ["/GPU:0"]}"#,
        pieces: &[256 * MIB, 128 * MIB],
        ..PLAIN
    },
    Way {
        name: "two GPUs",
        settings: r#"{"held": 1, "devices": ["/GPU:0", "/GPU:1"]}"#,
        stand_in: &[("STANDIN_GPUS", 2)],
        pieces: &[2560 * MIB, 2560 * MIB],
        ..PLAIN
    },
    // More than there is: managed memory.
    Way { name: "managed", settings: r#"{"held": 1, "per_process_gpu_memory_fraction": 1.5}"#, pieces: &[], ..PLAIN },
    // Less is left than the driver says: a tenth less is asked for, again and again.
    Way { name: "back-off", stand_in: &[("STANDIN_ROOM", 2_000_000_000)], pieces: &[1_956_894_464], ..PLAIN },
    Way {
        name: "garbage collection",
        script: "collect.py",
        settings: "{}",
        env: &[("TF_FORCE_GPU_ALLOW_GROWTH", "true")],
        pieces: &[64 * MIB, 448 * MIB],
        ..PLAIN
    },
];

/// The ledger is the driver's log, byte for byte, and says of each device what TensorFlow says is in use there.
fn counts_the_same(python: &Path, way: &Way) -> Result<()> {
    let bare = StandIn::new(Build::Bare)?;
    let stand_in = way.stand_in.iter().fold(bare, |stand_in, (name, value)| stand_in.with(name, *value));
    let ran = run(python, &stand_in, way.script, way.settings, way.env)?;
    let process = ran.process()?;
    let mut pieces = ran.truth.pieces(ON_DEVICE);
    let mut expected = way.pieces.to_vec();
    pieces.sort_unstable();
    expected.sort_unstable();
    ensure!(pieces == expected, "TensorFlow took {pieces:?} and not {expected:?}");
    let exit = look::exit(process)?;
    // What lies outside of pools is named by the library that asked for it.
    let outside = exit.survivors.iter().filter(|survivor| survivor.layer == Layer::Device);
    for survivor in outside {
        let library = survivor.place.native.as_deref().unwrap_or_default();
        ensure!(library.starts_with("libtensorflow"), "asked for by {library:?}");
    }
    let devices = ran.in_use.as_object().context("IN_USE is no object")?;
    for (device, said) in devices {
        let index = device.trim_start_matches("GPU:");
        let found = match look::pool(exit, &format!("GPU_{index}_bfc")) {
            Ok(pool) => pool.in_use_bytes,
            Err(_) => streams(exit, index.parse()?),
        };
        ensure!(*said == found, "{device}: TensorFlow says {said}, the report {found}");
        ensure!(found > 3 * MIB, "{device}: nothing is in use");
    }
    Ok(())
}

fn streams(exit: &Boundary, index: u32) -> u64 {
    let device = exit.after.devices.iter().filter(|device| device.index == Some(index));
    device.flat_map(|device| &device.stream_pools).map(|pool| pool.in_use_bytes).sum()
}

#[test]
fn the_async_allocator_counts_the_same() -> Result<()> {
    let Some(python) = python("the_async_allocator_counts_the_same")? else { return Ok(()) };
    counts_the_same(&python, &ASYNC)
}

#[test]
fn every_way_counts_the_same() -> Result<()> {
    const NAME: &str = "every_way_counts_the_same";
    if !machine::long() {
        machine::skip_optional(NAME, "only with --full");
        return Ok(());
    }
    let Some(python) = python(NAME)? else { return Ok(()) };
    WAYS.iter().try_for_each(|way| counts_the_same(&python, way).context(way.name))
}

/// The classic complaint: the session is closed, and the GPU is as full as before.
#[test]
fn the_pool_stays_when_the_session_is_closed() -> Result<()> {
    const NAME: &str = "the_pool_stays_when_the_session_is_closed";
    let Some(python) = python(NAME)? else { return Ok(()) };
    let ran = run(&python, &StandIn::new(Build::FramePointers)?, "session.py", "{}", &[])?;
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
