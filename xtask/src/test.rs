//! `cargo xtask test`

use anyhow::Result;

#[derive(clap::Args)]
pub struct Args {
    filter: Option<String>,
}

pub fn run(_args: &Args) -> Result<()> {
    Ok(())
}
