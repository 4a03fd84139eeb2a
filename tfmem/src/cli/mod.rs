//! The command line.

mod agent;
mod args;
mod doctor;
mod exit;
mod explain;
mod export;
#[cfg(feature = "flame")]
mod flame;
mod mark;
mod output;
mod privilege;
mod profiles;
mod report;
mod run;
mod snapshot;
mod stop;
mod trace;

use std::process::ExitCode;

use clap::Parser as _;

use self::{args::Command, exit::Failure};

/// Parses the command line and runs it. Errors go to stderr in one line with what to do; the exit status tells kinds
/// of failure apart (see `exit`).
#[must_use]
pub fn main() -> ExitCode {
    let args = args::Args::parse();
    init_log(args.verbose);
    let result = match args.command {
        Command::Run(run) => run::run(run),
        Command::Trace(trace) => trace::trace(trace),
        Command::Snapshot(snapshot) => snapshot::snapshot(&snapshot),
        Command::Mark(mark) => mark::mark(&mark),
        Command::Doctor(doctor) => doctor::doctor(&doctor),
        Command::Explain(args) => explain::explain(&args),
        Command::Report(report) => report::report(&report),
        #[cfg(feature = "flame")]
        Command::Flame(flame) => flame::flame(&flame),
        Command::Export(export) => export::export(&export),
        Command::Agent(agent) => agent::agent(&agent),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => failure.report(),
    }
}

/// Warnings by default; `-v` says what goes in where, `-vv` everything. `TFMEM_LOG` overrides.
fn init_log(verbose: u8) {
    let level = match verbose {
        0 => "tfmem=warn,tfmem_ebpf=trace",
        1 => "tfmem=info,tfmem_ebpf=trace",
        _ => "tfmem=debug,tfmem_ebpf=trace",
    };
    let env = env_logger::Env::new().filter_or("TFMEM_LOG", level);
    env_logger::Builder::from_env(env)
        .format(|out, record| {
            use std::io::Write as _;
            let level = record.level().as_str().to_lowercase();
            writeln!(out, "tfmem: {level}: {}", printable(&record.args().to_string()))
        })
        .init();
}

/// Exit statuses other than 0 and those of the traced command.
pub mod status {
    pub use super::exit::{ABOVE_LIMIT, FAILED, USAGE};
}

/// Names of files and commands come from outside: nothing of them may steer the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

impl Failure {
    fn report(&self) -> ExitCode {
        use std::io::Write as _;
        // A closed stderr is no reason for another error.
        let _ = writeln!(std::io::stderr(), "tfmem: {}", printable(self.message()));
        ExitCode::from(self.status())
    }
}
