//! `cargo xtask build`

use anyhow::Result;

use crate::{process::Program, workspace};

#[derive(clap::Args)]
pub struct Args {
    /// Optimised, as it is shipped
    #[arg(long)]
    release: bool,
}

pub fn run(args: &Args) -> Result<()> {
    build(args.release)?;
    println!("built {}", workspace::binary(args.release)?.display());
    Ok(())
}

pub fn build(release: bool) -> Result<()> {
    cargo(release)?.run()
}

pub fn cargo(release: bool) -> Result<Program> {
    let cargo = workspace::cargo(&["build", "--package", "tfmem"])?;
    Ok(if release { cargo.arg("--release") } else { cargo })
}
