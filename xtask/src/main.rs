//! The project's own commands: `cargo xtask VERB`.

mod bench;
mod build;
mod demo;
mod layout;
mod process;
mod python;
mod setup;
mod test;
mod vm;
mod workspace;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Sets up, builds, shows and tests tfmem")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Installs what the build and the tests need, as far as it is missing
    Setup(setup::Args),
    /// Builds the program, BPF object included
    Build(build::Args),
    /// Traces a small TensorFlow training and prints the report
    Demo(demo::Args),
    /// Measures what tfmem costs, as ratios in one run, and writes docs/overhead.md
    Bench(bench::Args),
    /// Checks format and lints, runs the unit tests and the integration tests
    Test(test::Args),
    /// Runs the probe suite on several kernels and compares
    Vm(vm::Args),
}

fn main() {
    let result = match Cli::parse().verb {
        Verb::Setup(args) => setup::run(&args),
        Verb::Build(args) => build::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Vm(args) => vm::run(&args),
    };
    if let Err(error) = result {
        eprintln!("xtask: {error:#}");
        std::process::exit(1);
    }
}
