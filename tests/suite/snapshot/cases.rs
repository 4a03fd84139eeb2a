//! The known complaints, looked at in the phase in which the memory is held.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use tfmem::snapshot::{Kind, model::Process};
use tfmem_tests::{
    look::{self, MIB},
    machine,
    running::Running,
    snapshot,
};

use super::heap::ensure_same;

tfmem_tests::on_each_tensorflow!(
    variables_of_open_sessions,
    a_pool_that_is_free,
    a_table_by_its_name,
    the_cache_of_a_dataset,
    what_malloc_keeps,
    what_a_server_keeps,
);

/// Each waits for TensorFlow in several phases: without `--full` on the newest alone.
fn required(test: &str, environment: &str, case: fn(&Path) -> Result<()>) -> Result<()> {
    if machine::is_for_full(test, environment) {
        return Ok(());
    }
    if machine::can_trace(test) { case(&machine::required_python(environment)?) } else { Ok(()) }
}

/// A script that waits in each of its phases.
struct Stepped {
    program: Running,
    /// What `mallinfo2` says in this phase.
    said: Value,
}

impl Stepped {
    fn start(python: &Path, script: &str, env: &[&str]) -> Result<Self> {
        let mut command = vec!["env".to_owned()];
        command.extend(env.iter().map(|&set| set.to_owned()));
        command.push(python.display().to_string());
        command
            .extend([machine::file("programs/step.py"), machine::file(script)].map(|path| path.display().to_string()));
        Ok(Self { program: Running::start(command)?, said: Value::Null })
    }

    /// Goes on to a phase and looks.
    fn at(&mut self, phase: &str) -> Result<Process> {
        loop {
            if !self.said.is_null() {
                self.program.signal(Signal::SIGUSR1)?;
            }
            let line = self.program.line()?;
            let name = line.strip_prefix("PHASE ").and_then(|rest| rest.split(' ').next()).map(str::to_owned);
            let name = name.with_context(|| format!("no phase but {line:?}"))?;
            self.said = serde_json::from_str(&self.program.line()?)?;
            if name == phase {
                return snapshot::of(self.program.pid());
            }
        }
    }
}

/// Everything adds up: the heap to the byte, the checks, and resident memory in its parts.
fn ensure_exact(process: &Process, said: &Value) -> Result<()> {
    ensure_same(&process.heap.figures.context("no figures of the heap")?, said)?;
    ensure_explained(process)
}

fn ensure_explained(process: &Process) -> Result<()> {
    snapshot::ensure_checked(process)?;
    let sum: u64 = process.resident.iter().map(|part| part.bytes).sum::<u64>() + process.unexplained_bytes;
    ensure!(sum.abs_diff(process.rss_bytes) < 4 * MIB, "parts {sum}, resident {}", process.rss_bytes);
    ensure!(process.unexplained_bytes < 8 * MIB, "unexplained: {}", process.unexplained_bytes);
    Ok(())
}

fn variables_of_open_sessions(python: &Path) -> Result<()> {
    let mut case = Stepped::start(python, "cases/01_unclosed_tf1_session.py", &[])?;
    let process = case.at("training_end")?;
    ensure_exact(&process, &case.said)?;
    ensure!(snapshot::objects(&process, "DirectSession") == 4, "{:?}", process.classes);
    let holder = snapshot::largest(&process)?;
    ensure!(holder.owner == "variable" && holder.name.as_deref() == Some("w") && holder.complete, "{holder:?}");
    ensure!(holder.count == 4 && holder.container.as_deref() == Some("localhost"), "{holder:?}");
    look::ensure_near("variable w", holder.bytes, 256 * MIB)?;
    // Closed: not one is left, whatever remains of them in freed chunks.
    let process = case.at("after_close")?;
    ensure_exact(&process, &case.said)?;
    ensure!(snapshot::objects(&process, "DirectSession") == 0, "{:?}", process.classes);
    ensure!(process.classes.iter().all(|class| class.kind != Kind::Variable), "{:?}", process.classes);
    Ok(())
}

fn a_pool_that_is_free(python: &Path) -> Result<()> {
    for pool in ["bfc", "mkl"] {
        let mut case = Stepped::start(python, "cases/03_allocator_pool_after_close.py", &[&format!("POOL={pool}")])?;
        let process = case.at("closed_and_deleted")?;
        ensure_exact(&process, &case.said)?;
        let pools: Vec<_> = process.pools.iter().filter(|pool| pool.regions > 0).collect();
        let [pool] = pools.as_slice() else { anyhow::bail!("{:?}", process.pools) };
        ensure!(pool.in_use_bytes == 0 && pool.regions_bytes >= 256 * MIB && pool.refused.is_none(), "{pool:?}");
        ensure!(pool.resident_bytes >= 256 * MIB, "{pool:?}");
        let name = pool.name.as_deref().context("no name")?;
        ensure!(snapshot::part(&process, &format!("pool \"{name}\" free")) == pool.resident_bytes, "{process:?}");
    }
    Ok(())
}

fn a_table_by_its_name(python: &Path) -> Result<()> {
    let mut case = Stepped::start(python, "cases/04_stateful_hash_table_persists.py", &[])?;
    let process = case.at("named_deleted")?;
    ensure_exact(&process, &case.said)?;
    let holder = snapshot::largest(&process)?;
    ensure!(holder.owner == "table" && holder.class.contains("MutableHashTableOfTensors"), "{holder:?}");
    ensure!(holder.container.as_deref() == Some("localhost"), "{holder:?}");
    ensure!(holder.name.as_deref().is_some_and(|name| name.starts_with("table_")), "{holder:?}");
    ensure!(holder.bytes >= 40 * MIB && holder.bytes < 48 * MIB, "{holder:?}");
    let process = case.at("named_destroyed")?;
    ensure!(process.holders.iter().all(|holder| holder.owner != "table"), "{:?}", process.holders);
    Ok(())
}

fn the_cache_of_a_dataset(python: &Path) -> Result<()> {
    let mut case = Stepped::start(python, "cases/07_tfdata_cache.py", &[])?;
    let process = case.at("epoch_done")?;
    ensure_explained(&process)?;
    let holder = snapshot::largest(&process)?;
    ensure!(holder.owner == "dataset cache" && holder.count == 64 && holder.complete, "{holder:?}");
    look::ensure_near("the cache", holder.bytes, 64 * MIB)?;
    let process = case.at("dataset_deleted")?;
    ensure!(process.holders.iter().all(|holder| holder.owner != "dataset cache"), "{:?}", process.holders);
    Ok(())
}

fn what_malloc_keeps(python: &Path) -> Result<()> {
    let mut case = Stepped::start(python, "cases/09_glibc_fragmentation.py", &[])?;
    let process = case.at("after_free")?;
    ensure_exact(&process, &case.said)?;
    let figures = process.heap.figures.context("no figures")?;
    look::ensure_near("free", figures.free_bytes, 316 * MIB)?;
    ensure!(figures.trimmable_bytes > 250 * MIB, "{figures:?}");
    // The phase after it has called malloc_trim: what was said came true.
    let trimmed = case.at("after_trim")?;
    ensure_exact(&trimmed, &case.said)?;
    let given_back = process.rss_bytes - trimmed.rss_bytes;
    ensure!(given_back.abs_diff(figures.trimmable_bytes) < 2 * MIB, "said {figures:?}, gave back {given_back}");
    ensure!(trimmed.heap.figures.context("no figures")?.trimmable_bytes < MIB, "{:?}", trimmed.heap);
    // One in 64 was kept: in Python's hands.
    let holder = trimmed.holders.iter().find(|holder| holder.class.contains("EagerTensor"));
    let holder = holder.with_context(|| format!("no tensor: {:?}", trimmed.holders))?;
    ensure!(holder.count == 3125 && holder.complete, "{holder:?}");
    Ok(())
}

fn what_a_server_keeps(python: &Path) -> Result<()> {
    let mut case = Stepped::start(python, "cases/11_distribute_server_state.py", &[])?;
    let process = case.at("second_session_closed")?;
    // The server's threads go on: the heap may change between the two looks at it.
    ensure_explained(&process)?;
    ensure!(snapshot::objects(&process, "tensorflow::GrpcServer") == 1, "{:?}", process.classes);
    let holder = snapshot::largest(&process)?;
    ensure!(holder.owner == "variable" && holder.name.as_deref() == Some("w"), "{holder:?}");
    ensure!(holder.container.as_deref() == Some("localhost") && holder.complete, "{holder:?}");
    look::ensure_near("variable w", holder.bytes, 64 * MIB)
}
