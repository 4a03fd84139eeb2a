//! `cargo xtask bench`: what tfmem costs.

use anyhow::{Result, bail};

use crate::{build, process::is_root, setup, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Only the agent on a host with many processes; nothing is written
    #[arg(value_enum)]
    what: Option<What>,
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

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Fleet,
}

pub fn run(args: &Args) -> Result<()> {
    if !is_root() {
        bail!("tracing needs root: run `sudo -E $(which cargo) xtask bench`");
    }
    setup::ensure(setup::Extent::Tests)?;
    if args.what.is_none() {
        setup::bpftrace();
    }
    build::build(true)?;
    let mut bench = workspace::cargo(&["bench", "--package", "tfmem-tests", "--bench", "cost", "--"])?
        .env("TFMEM_BIN", workspace::binary(true)?);
    if args.quick {
        bench = bench.arg("--quick");
    }
    if args.what == Some(What::Fleet) {
        bench = bench.arg("--fleet");
    } else if let Some(part) = &args.only {
        bench = bench.arg("--only").arg(part);
    } else if !args.quick && !args.dry_run {
        bench = bench.arg("--write").arg(workspace::root().join("docs/overhead.md"));
    }
    bench.run()
}
