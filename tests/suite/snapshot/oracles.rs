//! Pools and Python's objects, against what TensorFlow and the interpreter count themselves.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem_tests::{look::MIB, machine, running::Running, snapshot};

#[test]
fn a_pool_in_use_on_2_15_1() -> Result<()> {
    a_pool_in_use("tf-2.15.1")
}

#[test]
fn a_pool_in_use_on_2_21_0() -> Result<()> {
    a_pool_in_use("tf-2.21.0")
}

fn a_pool_in_use(environment: &str) -> Result<()> {
    if !machine::can_trace(environment) {
        return Ok(());
    }
    compare(&machine::required_python(environment)?)
}

fn compare(python: &Path) -> Result<()> {
    let mut program = Running::start([python, &machine::file("programs/snapshot_oracle.py")])?;
    let said: Value = serde_json::from_str(&program.line()?)?;
    let said = |name: &str| said[name].as_u64().with_context(|| format!("no {name}"));
    let process = snapshot::of(program.pid())?;
    snapshot::ensure_checked(&process)?;
    let pools: Vec<_> = process.pools.iter().filter(|pool| pool.in_use_bytes > 0).collect();
    let [pool] = pools.as_slice() else { anyhow::bail!("{:?}", process.pools) };
    ensure!(pool.in_use_bytes == said("pool_in_use")?, "said {}, found {pool:?}", said("pool_in_use")?);
    // The interpreter goes on for a moment after it counted.
    let python = process.python.as_ref().context("no Python")?;
    let off = python.used_bytes.abs_diff(said("pymalloc")?);
    ensure!(off < 64 << 10, "said {}, found {python:?}", said("pymalloc")?);

    let holders: Vec<_> = process.holders.iter().filter(|holder| holder.bytes >= MIB).collect();
    for name in ["weights_0", "weights_1", "weights_2"] {
        let holder = holders.iter().find(|holder| holder.name.as_deref() == Some(name));
        ensure!(holder.is_some_and(|holder| holder.owner == "variable" && holder.complete), "{name}: {holders:?}");
    }
    let cache = holders.iter().find(|holder| holder.owner == "dataset cache").context("no cache")?;
    ensure!(cache.count == 8, "{cache:?}");
    let tensors = holders.iter().find(|holder| holder.class.contains("EagerTensor")).context("no tensors")?;
    ensure!(tensors.bytes >= 8 * MIB && tensors.complete, "{tensors:?}");
    Ok(())
}
