//! `cargo xtask setup`: installs what is missing, and only that. May be run at any time, again and again.

mod debian;
mod driver;
mod environments;
mod linker;
mod rust;

use std::fs::{self, File};

use anyhow::{Context as _, Result};
pub use debian::bpftrace;

use crate::layout::{self, Environment};

#[derive(clap::Args)]
pub struct Args {
    /// Also the TensorFlow versions that only `test --full` uses
    #[arg(long)]
    full: bool,
}

/// How much of it a verb needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// To build and to run one TensorFlow program
    Demo,
    /// To run the probe suite on other kernels
    Kernels,
    /// To run the tests
    Tests,
    /// To run all tests there are
    Full,
}

pub fn run(args: &Args) -> Result<()> {
    ensure(if args.full { Extent::Full } else { Extent::Tests })?;
    println!("setup: complete, in {}", layout::cache_dir().display());
    Ok(())
}

pub fn ensure(extent: Extent) -> Result<()> {
    let required = match extent {
        // The newest: what most people run.
        Extent::Demo => &layout::REQUIRED[layout::REQUIRED.len() - 1..],
        Extent::Kernels => &[],
        Extent::Tests | Extent::Full => layout::REQUIRED,
    };
    let _lock = lock()?;
    debian::ensure(required, extent)?;
    rust::ensure()?;
    linker::ensure()?;
    for environment in required {
        environments::ensure(environment)?;
    }
    if matches!(extent, Extent::Tests | Extent::Full) {
        environments::ensure_if_possible(&layout::GPU)?;
        driver::ensure_if_possible();
    }
    if extent == Extent::Full {
        layout::EXTRA.iter().try_for_each(environments::ensure_if_possible)?;
    }
    Ok(())
}

/// The environment that the demo uses.
pub fn newest() -> Result<&'static Environment> {
    layout::REQUIRED.last().context("no TensorFlow version is listed")
}

/// Two set-ups at once (two work trees, one cache) would install over each other; the lock goes with the process.
fn lock() -> Result<File> {
    let dir = layout::cache_dir();
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join("setup.lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        step("waiting for another setup to end");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn present(what: &str) {
    println!("setup: {what}: already there");
}

fn step(what: &str) {
    println!("setup: {what} …");
}
