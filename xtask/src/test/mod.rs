//! `cargo xtask test`: what a change must pass, in one command. CI calls this and nothing else.

mod summary;

use std::env;

use anyhow::{Result, bail};

use self::summary::Summary;
use crate::{
    build, layout,
    process::{Program, is_root},
    setup::{self, Extent},
    workspace,
};

#[derive(clap::Args)]
pub struct Args {
    /// More TensorFlow and Python versions, and long property tests
    #[arg(long)]
    full: bool,
    /// Only the tests whose name contains this; format and lints are left out
    filter: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    setup::ensure(if args.full { Extent::Full } else { Extent::Tests })?;
    let mut summary = Summary::default();
    if args.filter.is_none() {
        summary.step("format", workspace::cargo(&["fmt", "--all", "--check"])?)?;
        summary.step("lints", lints()?)?;
        summary.step("lints of the BPF programs", bpf_lints()?)?;
    }
    summary.tests("unit tests", unit_tests(args)?)?;
    integration_tests(args, &mut summary)?;

    summary.print();
    if summary.ran() == 0 {
        bail!("no test matches {}", args.filter.as_deref().unwrap_or("anything"));
    }
    if summary.failed() {
        bail!("failed");
    }
    // Where nobody looks, a test that could not run is a failure; a person without root sees what was left out.
    if summary.skipped_required() && env::var_os("CI").is_some() {
        bail!("required tests were skipped");
    }
    Ok(())
}

fn lints() -> Result<Program> {
    let args = ["clippy", "--workspace", "--exclude", "tfmem-ebpf", "--all-targets", "--", "-D", "warnings"];
    workspace::cargo(&args)
}

fn bpf_lints() -> Result<Program> {
    let args =
        ["clippy", "--package", "tfmem-ebpf", "-Z", "build-std=core", "--target", layout::BPF_TARGET, "--target-dir"];
    Ok(workspace::cargo(&args)?
        // Apart from the host's: some build scripts look at RUSTC_BOOTSTRAP and would be built again and again.
        .arg(workspace::target_dir()?.join("bpf-lints"))
        .args(["--", "-D", "warnings"])
        .env("RUSTC_BOOTSTRAP", "1"))
}

fn unit_tests(args: &Args) -> Result<Program> {
    let cargo = workspace::cargo(&["test", "--workspace", "--exclude", "tfmem-ebpf", "--exclude", "tfmem-tests"])?;
    Ok(with_options(cargo, args))
}

/// Real programs under the real tracer: optimised, as it is shipped, and one at a time, since they measure memory.
fn integration_tests(args: &Args, summary: &mut Summary) -> Result<()> {
    if !is_root() {
        println!("not root: tests that trace something will be skipped");
    }
    build::build(true)?;
    let cargo = with_options(workspace::cargo(&["test", "--package", "tfmem-tests", "--test", "suite"])?, args)
        .env("TFMEM_BIN", workspace::binary(true)?);
    let cargo = if args.filter.is_some() { cargo } else { cargo.arg("--") };
    summary.tests("integration tests", cargo.arg("--test-threads=1"))
}

fn with_options(mut cargo: Program, args: &Args) -> Program {
    if args.full {
        cargo = cargo.env("TFMEM_LONG", "1");
    }
    match &args.filter {
        Some(filter) => cargo.arg("--").arg(filter),
        None => cargo,
    }
}
