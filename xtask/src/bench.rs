//! `cargo xtask bench`: what tfmem costs.

use anyhow::{Result, bail};

use crate::{build, process::is_root, setup, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Only to see that all of it works: few rounds, and nothing is written
    #[arg(long)]
    quick: bool,
    /// Only print the figures
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if !is_root() {
        bail!("tracing needs root: run `sudo -E $(which cargo) xtask bench`");
    }
    setup::ensure(setup::Extent::Tests)?;
    setup::bpftrace();
    build::build(true)?;
    let mut bench = workspace::cargo(&["bench", "--package", "tfmem-tests", "--bench", "cost", "--"])?
        .env("TFMEM_BIN", workspace::binary(true)?);
    if args.quick {
        bench = bench.arg("--quick");
    } else if !args.dry_run {
        bench = bench.arg("--write").arg(workspace::root().join("docs/overhead.md"));
    }
    bench.run()
}
