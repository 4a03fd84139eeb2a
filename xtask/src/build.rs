//! `cargo xtask build`

use anyhow::Result;

use crate::workspace;

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
    let mut cargo = workspace::cargo(&["build", "--package", "tfmem"])?;
    if release {
        cargo = cargo.arg("--release");
    }
    cargo.run()
}
