//! `cargo xtask test`: what a change must pass, in one command. CI calls this and nothing else.

mod summary;

use std::env;

use anyhow::{Result, bail};

use self::summary::Summary;
use crate::{
    build, layout,
    process::{Program, is_root},
    setup::{self, Extent},
    vm, workspace,
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
    summary.step("unit tests", unit_tests(args)?)?;
    summary.step("build", build::cargo(true)?)?;
    summary.step("integration tests", integration_tests(args)?)?;
    if args.filter.is_none() {
        match kernels(args) {
            Ok(program) => summary.step("kernels", program)?,
            Err(why) => summary.skip("kernels", why),
        }
    }
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
    runner(&["--workspace", "--exclude", "tfmem-ebpf", "--exclude", "tfmem-tests"], args, &[])
}

/// Real programs under the real tracer: optimised, as it is shipped, and one at a time, since they measure memory.
fn integration_tests(args: &Args) -> Result<Program> {
    if !is_root() {
        println!("not root: tests that trace something will be skipped");
    }
    let runner = runner(&["--package", "tfmem-tests", "--test", "suite"], args, &["--test-threads=1"])?;
    Ok(runner.env("TFMEM_BIN", workspace::binary(true)?))
}

/// The kernel matrix, by this program itself.
fn kernels(args: &Args) -> Result<Program, &'static str> {
    if !is_root() {
        return Err("not root");
    }
    let own = env::current_exe().map_err(|_| "this program does not find itself")?;
    let matrix = Program::new(own).args(["vm", "--prove"]);
    Ok(if args.full { matrix.args(["--storm", &vm::LONG_STORM.to_string()]) } else { matrix })
}

fn runner(what: &[&str], args: &Args, options: &[&str]) -> Result<Program> {
    // One failure must not hide the next.
    let cargo = workspace::cargo(&["test", "--no-fail-fast"])?
        // An error of a test says what is wrong; where it passed through is noise.
        .env("RUST_LIB_BACKTRACE", "0")
        .args(what)
        .arg("--")
        .args(options)
        .args(&args.filter);
    Ok(if args.full { cargo.env("TFMEM_LONG", "1") } else { cargo })
}
