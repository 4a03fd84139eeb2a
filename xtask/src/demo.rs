//! `cargo xtask demo`: the program at work on a small training.

use anyhow::{Result, bail};

use crate::{
    build,
    process::{Program, is_root},
    setup, workspace,
};

#[derive(clap::Args)]
pub struct Args {
    /// Options of `tfmem run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    if !is_root() {
        bail!("tracing needs root: run `sudo -E $(which cargo) xtask demo`");
    }
    setup::ensure(setup::Extent::Demo)?;
    build::build(true)?;
    let program = Program::new(workspace::binary(true)?)
        .arg("run")
        .args(&args.options)
        .arg("--")
        .arg(setup::newest()?.python())
        .arg(workspace::root().join("xtask/demo/train.py"))
        .env("TF_CPP_MIN_LOG_LEVEL", "2")
        // The default on newer processors only; the demo is to show a pool on each.
        .env("TF_ENABLE_ONEDNN_OPTS", "1")
        // cargo's: the training is to find its libraries as it would without us.
        .env_remove("LD_LIBRARY_PATH");
    println!("\n$ {program}\n");
    program.run()
}
