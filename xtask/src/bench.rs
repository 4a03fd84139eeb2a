//! `cargo xtask bench`: what tfmem costs.

use anyhow::{Result, bail};

use crate::{build, process::is_root, setup, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only print the figures
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if !is_root() {
        bail!("tracing needs root: run `sudo -E $(which cargo) xtask bench`");
    }
    setup::ensure(setup::Extent::Tests)?;
    build::build(true)?;
    let rounds = args.rounds.to_string();
    let mut bench =
        workspace::cargo(&["bench", "--package", "tfmem-tests", "--bench", "cost", "--", "--rounds", &rounds])?
            .env("TFMEM_BIN", workspace::binary(true)?);
    if !args.dry_run {
        bench = bench.arg("--write").arg(workspace::root().join("docs/overhead.md"));
    }
    bench.run()
}
