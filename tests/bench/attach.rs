//! How long it takes until a library's probes are known.

use std::time::Instant;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tfmem::{
    attach::{cache::Cache, elf::Elf},
    unwind::table::cache as tables,
};
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
    let (mut made, mut remembered, mut rows) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..rounds {
        let cache = TempDir::new()?;
        let (tables, elf) = (tables::Cache::at(cache.path()), Elf::open(&library)?);
        for times in [&mut made, &mut remembered] {
            let begun = Instant::now();
            let table = tables.table(&elf)?.context("the library has no unwind information")?.compact();
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            rows = table.rows.len() as f64;
        }
        let cache = Cache::at(cache.path());
        for times in [&mut first, &mut second] {
            let begun = Instant::now();
            cache.resolve(&library)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let first = Figure::new("symbols of libtensorflow_cc 2.21, uncached", "ms", median(&mut first)).goal("< 2 s");
    let second = Figure::new("the same, cached", "ms", median(&mut second)).goal("< 300 ms");
    let made = Figure::new("unwind table of libtensorflow_cc 2.21, made", "ms", median(&mut made));
    let remembered = Figure::new("the same, cached", "ms", median(&mut remembered));
    let rows = Figure::new("its rows in the kernel, 8 bytes each", "rows", rows);
    Ok(vec![first, second, made, remembered, rows])
}
