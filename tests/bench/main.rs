//! What tfmem costs, as ratios measured in one run: `cargo xtask bench`.
//!
//! Each figure is the median of several rounds; what is compared runs in turns within a round, so that a machine that is
//! busy for a while slows both sides. Prints a JSON line for each figure and a table; with `--write FILE` the table and
//! the method go to that file.

mod attach;
mod figure;
mod probes;
mod programs;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use figure::Figure;

fn main() -> Result<()> {
    let mut write = None;
    let mut rounds = 5;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--write" => write = Some(PathBuf::from(args.next().context("--write needs a file")?)),
            "--rounds" => rounds = args.next().context("--rounds needs a number")?.parse()?,
            // Cargo passes it to every bench.
            "--bench" => {}
            other => bail!("unknown option {other}"),
        }
    }
    let mut figures = Vec::new();
    let mut take = |new: Vec<Figure>| {
        for figure in new {
            println!("{}", figure.json());
            figures.push(figure);
        }
    };
    take(probes::measure(rounds)?);
    take(attach::measure(rounds)?);
    take(programs::measure(rounds)?);
    let table = figure::table(&figures);
    println!("\n{table}");
    if let Some(path) = write {
        std::fs::write(&path, figure::document(&table, rounds))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
