//! The `tfmem` program: reads the command line, runs the command, passes its exit status on.

use std::process::ExitCode;

fn main() -> ExitCode {
    tfmem::cli::main()
}
