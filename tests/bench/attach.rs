//! How long it takes until a library's probes are known.

use std::time::Instant;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tfmem::attach::cache::Cache;
use tfmem_tests::machine;

use crate::figure::{Figure, median};

pub fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let python = machine::required_python("tf-2.21.0")?;
    let folder = python.parent().and_then(|bin| bin.parent()).context("the environment has no folder")?;
    let library = std::fs::read_dir(folder.join("lib"))?
        .flatten()
        .map(|version| version.path().join("site-packages/tensorflow/libtensorflow_cc.so.2"))
        .find(|path| path.exists())
        .context("the environment has no libtensorflow_cc.so.2")?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let cache = TempDir::new()?;
        let cache = Cache::at(cache.path());
        for times in [&mut first, &mut second] {
            let begun = Instant::now();
            cache.resolve(&library)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let first = Figure::new("symbols of libtensorflow_cc 2.21, uncached", "ms", median(&mut first)).goal("< 2 s");
    let second = Figure::new("the same, cached", "ms", median(&mut second)).goal("< 300 ms");
    Ok(vec![first, second])
}
