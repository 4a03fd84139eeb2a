//! `cargo xtask bench`: what tfmem costs.

use anyhow::{Result, bail};

use crate::{build, process::is_root, setup, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Only to see that all of it works: few rounds, and nothing is written
    #[arg(long)]
    quick: bool,
    /// One part alone (`probes`, `work`, `attach`, `programs`, `whole`), and nothing is written
    #[arg(long, value_name = "PART")]
    only: Option<String>,
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
    }
    if let Some(part) = &args.only {
        bench = bench.arg("--only").arg(part);
    } else if !args.quick && !args.dry_run {
        bench = bench.arg("--write").arg(workspace::root().join("docs/overhead.md"));
    }
    bench.run()
}
