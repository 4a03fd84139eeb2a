//! Arguments, their help, and how they are checked.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand, ValueEnum};

use super::profiles::Wanted;
use crate::{
    attach::memory::Backend,
    live::symbols::Symbol,
    profile::{
        Selection, Which,
        moment::{Moment, Of},
    },
    report::model::Layer,
};

/// Tells which memory TensorFlow did not give back: what outlived the close of a session, how much of it is really
/// resident, which op allocated it, why it is still there, and what gives it back.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Say on stderr what is attached where (-vv: everything)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sudo tfmem run -- python train.py            run a program, report what it did not give back
  sudo tfmem run --format json --report-file r.json -- python train.py
  sudo tfmem run --fail-above 100MiB -- python test_training.py     for CI: status 3 above 100 MiB
  sudo tfmem trace --pid 4711                  attach to a running job, Ctrl-C reports
  sudo tfmem snapshot --pid 4711               what it holds right now and by whom, without a probe
  sudo tfmem mark --pid 4711 'epoch 3 done'    what it allocated since the last mark is expected back
  sudo tfmem trace --pid 4711 --until-close    the same, ends by itself after the next close of a session
  sudo tfmem doctor                            can it work here, and what is missing
  sudo tfmem run -o job.tfmem -- python train.py       record it; later, anywhere: tfmem report job.tfmem
  tfmem flame job.tfmem -o held.svg            who allocated what is still held
  tfmem export job.tfmem --format pprof -o held.pb.gz

Exit status: 0 done, 1 tfmem failed, 2 wrong usage or missing privilege, 3 --fail-above was met.
`run` passes on the program's own status (128 + n when signal n ended it, 127 command not found,
126 command not executable).";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a program and trace it and all its children from the first instruction
    Run(Run),
    /// Attach to running processes and their children; Ctrl-C ends the trace and reports
    Trace(Trace),
    /// Say what running processes hold right now and who holds it; no probe, nothing is stopped
    #[command(after_help = SNAPSHOT_STATUS)]
    Snapshot(Snapshot),
    /// Set a boundary by hand in a running trace: what was allocated since the last mark is expected back now
    Mark(Mark),
    /// Say what this kernel, these privileges and these libraries allow, and the fix for what is missing
    #[command(after_help = DOCTOR_STATUS)]
    Doctor(Doctor),
    /// Show the report of a recorded trace again; needs no privileges
    Report(Report),
    /// Explain the causes that a report names, or one of them in full
    Explain(Explain),
    /// Draw who allocated what survived, as a flame graph (SVG)
    #[cfg(feature = "flame")]
    Flame(Flame),
    /// Write survivors by stack, or memory over time, for other tools
    #[command(after_help = EXPORT_FORMATS)]
    Export(Export),
    /// Watch every TensorFlow process of this host, continuously and cheaply; metrics, findings, orders
    #[command(after_help = AGENT_STATUS)]
    Agent(Agent),
}

const AGENT_STATUS: &str = "\
docs/fleet.md describes the configuration, key by key. SIGHUP takes it anew, the ledgers stay.

Exit status: 0 ended when it was told to, 1 tfmem failed, 2 wrong usage or configuration, or missing
privilege.";

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Agent {
    /// What it does, a TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say what is wrong with the configuration
    #[arg(long, requires = "config")]
    pub check: bool,
    #[command(subcommand)]
    pub command: Option<AgentCommand>,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Give the running agent an order
    Ctl(Ctl),
}

#[derive(Debug, ClapArgs)]
pub struct Ctl {
    #[command(subcommand)]
    pub command: CtlCommand,
    /// The agent's socket, if the configuration names another than the usual one
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How to print the answer
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Colours in the text
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// What the agent does and what it costs
    Status,
    /// The processes that it follows
    Processes,
    /// Trace a process in full for a while: each allocation with its op
    Escalate {
        pid: u32,
        /// For so long, such as 60s; as configured without
        #[arg(long = "for", value_parser = humantime::parse_duration, value_name = "TIME")]
        time: Option<Duration>,
    },
    /// What a process holds right now and who holds it
    Snapshot { pid: u32 },
    /// The report of a process: of its last full tracing, or of what is known without
    Report { pid: u32 },
}

const EXPORT_FORMATS: &str = "\
Formats:
  folded      one line for each stack, for flamegraph.pl and its kin
  pprof       for `go tool pprof`: inuse_space and inuse_objects
  speedscope  for https://www.speedscope.app
  perfetto    Chrome's trace events, for https://ui.perfetto.dev: memory over time with boundaries as marks";

const DOCTOR_STATUS: &str = "\
Everything is found out by trying, on tfmem itself and on children of its own. `run` and `trace` go by
it: what is found is remembered until the machine boots again or its settings or privileges change.
doctor tries everything anew.

Exit status: 0 tfmem can trace here, 1 something it cannot do without is missing, 2 wrong usage or
missing privilege.";

const SNAPSHOT_STATUS: &str = "\
Needs to be root, or the same user as the process (and Yama's ptrace_scope 0).

Exit status: 0 done, 1 tfmem failed, 2 wrong usage, missing privilege, or no such process.";

#[derive(Debug, ClapArgs)]
pub struct Explain {
    /// A cause, as the report in JSON calls it: session_open, pool_reserve, …
    #[arg(value_name = "CAUSE")]
    pub cause: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Snapshot {
    /// Process to look at (repeat for several)
    #[arg(short, long = "pid", required_unless_present = "diff", num_args = 1.., value_name = "PID")]
    pub pids: Vec<u32>,
    /// Look at the children of these processes as well
    #[arg(long)]
    pub children: bool,
    /// Compare two snapshots that were written with --format json
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["pids", "children"])]
    pub diff: Vec<PathBuf>,
    /// How to print the snapshot
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Colours in the text
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

#[derive(Debug, ClapArgs)]
pub struct Run {
    #[command(flatten)]
    pub common: Common,
    /// The program and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub struct Trace {
    #[command(flatten)]
    pub common: Common,
    /// Process to attach to (repeat for several)
    #[arg(short, long = "pid", required = true, num_args = 1.., value_name = "PID")]
    pub pids: Vec<u32>,
    /// End the trace after this time, such as 30s or 5min
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub duration: Option<Duration>,
    /// End the trace a grace time after the next session was closed, or after N sessions were
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub until_close: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub struct Mark {
    /// The traced process that the mark is for
    #[arg(short, long, value_name = "PID")]
    pub pid: u32,
    /// What the report calls it
    pub label: String,
}

#[derive(Debug, ClapArgs)]
pub struct Doctor {
    /// Show where probes would sit in the libraries of this process (repeat for several)
    #[arg(short, long = "pid", num_args = 1.., value_name = "PID")]
    pub pids: Vec<u32>,
    /// Show where probes would sit in this library (repeat for several)
    #[arg(long = "library", value_name = "FILE")]
    pub libraries: Vec<PathBuf>,
    /// How to print the findings
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Colours in the text
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

#[derive(Clone, Debug, ClapArgs)]
pub struct Common {
    /// How long after a close memory may take to come back before it counts as a survivor
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub grace: Duration,
    /// Groups of survivors below this size are shown as one line
    #[arg(long, default_value = "1MiB", value_name = "BYTES")]
    pub min_bytes: ByteSize,
    #[command(flatten)]
    pub show: Show,
    /// Record the trace to this file as well: `tfmem report FILE` gives the report again, anywhere and without root.
    /// A file that is there already is kept as FILE.old
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Size of the kernel's event buffer; rounded up to a power of two
    #[arg(long, default_value = "16MiB", value_name = "BYTES")]
    pub buffer: ByteSize,
    /// Expect memory back whenever this function returns; LIB is the end of a file's path, SYMBOL the name in its
    /// symbol table (repeat for several)
    #[arg(long, value_parser = boundary, value_name = "LIB:SYMBOL")]
    pub boundary: Vec<Symbol>,
    /// How the memory map is followed; `tfmem doctor` says which ways work here. A way that does not is refused
    #[arg(long, value_enum, default_value_t = Mm::Auto, value_name = "HOW")]
    pub mm: Mm,
    /// How probes go into libraries
    #[arg(long, value_enum, default_value_t = Attach::Auto, value_name = "HOW", env = "TFMEM_ATTACH")]
    pub attach: Attach,
    /// Take the stack of each allocation: by the libraries' own unwind tables (dwarf), by frame pointers alone (fp,
    /// which most of Python's and the C library's code has not), or not at all. `copy`: as dwarf, and each new stack is
    /// checked by another unwinder on a copy of its memory; slow
    #[arg(long, value_enum, default_value_t = Stacks::Off, value_name = "HOW")]
    pub stacks: Stacks,
    /// No probe on what a program does all the time: what closes is noted, and the process is looked at then. Tells who
    /// holds what, not who allocated it; costs next to nothing between closes
    #[arg(long, conflicts_with_all = ["mm", "stacks", "fail_above"])]
    pub snapshot_only: bool,
    /// Let the BPF programs log what they see (to stderr)
    #[arg(long)]
    pub debug_bpf: bool,
}

#[derive(Debug, ClapArgs)]
pub struct Report {
    /// What `tfmem run -o FILE` or `tfmem trace -o FILE` wrote
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Another grace time than the recorded trace had
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub grace: Option<Duration>,
    /// Another smallest size of a group than the recorded trace had
    #[arg(long, value_name = "BYTES")]
    pub min_bytes: Option<ByteSize>,
    #[command(flatten)]
    pub show: Show,
}

/// Which memory.
#[derive(Clone, Debug, ClapArgs)]
pub struct Survivors {
    /// Survivors of this boundary: its number in the report, `last` (the last close or mark) or `end`
    #[arg(long, default_value = "end", value_name = "WHICH")]
    pub boundary: Which,
    /// Instead: all blocks alive at the `peak`, or so long after the trace began (12.5s). Takes a recording
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["boundary", "all"])]
    pub live: Option<Moment>,
    /// Instead: all blocks that were ever taken, given back since or not. Takes a recording
    #[arg(long, conflicts_with = "boundary")]
    pub all: bool,
    /// Of this process alone; of all without
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Of this layer alone, such as pool_chunk or heap
    #[arg(long, value_parser = layer, value_name = "LAYER")]
    pub layer: Option<Layer>,
}

impl Survivors {
    #[must_use]
    pub const fn wanted(&self) -> Wanted {
        let of = Of { pid: self.pid, layer: self.layer };
        match self.live {
            Some(moment) => Wanted::Live(moment, of),
            None if self.all => Wanted::Ever(of),
            None => Wanted::Survivors(Selection { which: self.boundary, pid: self.pid, layer: self.layer }),
        }
    }
}

#[cfg(feature = "flame")]
#[derive(Debug, ClapArgs)]
pub struct Flame {
    /// A recording (`tfmem run -o FILE`), or a report in JSON
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    /// Where the picture goes; `-`: to stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub survivors: Survivors,
    /// What the width of a frame means
    #[arg(long, value_enum, default_value_t = Weight::Bytes)]
    pub weight: Weight,
    /// Draw what changed since this recording or JSON report
    #[arg(long, value_name = "RECORDING")]
    pub diff: Option<PathBuf>,
    /// Draw what changed since this boundary (with --diff: of that recording)
    #[arg(long, value_name = "WHICH", conflicts_with_all = ["live", "all"])]
    pub diff_boundary: Option<Which>,
}

#[derive(Debug, ClapArgs)]
pub struct Export {
    /// A recording (`tfmem run -o FILE`), or a report in JSON
    #[arg(value_name = "RECORDING")]
    pub recording: PathBuf,
    #[arg(long, value_enum)]
    pub format: ExportFormat,
    /// Where it goes; `-`: to stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub survivors: Survivors,
    /// What the figures of `folded` are; other formats have both
    #[arg(long, value_enum, default_value_t = Weight::Bytes)]
    pub weight: Weight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Folded,
    Pprof,
    Speedscope,
    Perfetto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weight {
    Bytes,
    Count,
}

impl From<Weight> for crate::profile::Weight {
    fn from(weight: Weight) -> Self {
        match weight {
            Weight::Bytes => Self::Bytes,
            Weight::Count => Self::Count,
        }
    }
}

/// What becomes of a report.
#[derive(Clone, Debug, ClapArgs)]
pub struct Show {
    /// How to print the report
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Write the report to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub report_file: Option<PathBuf>,
    /// Exit with status 3 when what is held, leaks and unexplained bytes but not allocator reserves, exceeds this
    #[arg(long, value_name = "BYTES")]
    pub fail_above: Option<ByteSize>,
    /// Colours in the text report
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

/// By the report's word for it.
fn layer(text: &str) -> Result<Layer, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "expected device, pinned, managed, pool_region, pool_chunk, mapping or heap".to_owned())
}

/// `LIB:SYMBOL`. Names in symbol tables hold no colon; paths may.
fn boundary(text: &str) -> Result<Symbol, String> {
    match text.rsplit_once(':') {
        Some((library, symbol)) if !library.is_empty() && !symbol.is_empty() => {
            Ok(Symbol { library: library.to_owned(), symbol: symbol.to_owned() })
        }
        _ => Err("expected LIB:SYMBOL, such as libc.so.6:malloc_trim".to_owned()),
    }
}

/// Ways of following the memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mm {
    /// The first of the following that works here
    Auto,
    /// The system calls' tracepoints: every system call of the machine takes a slower way meanwhile
    Tracepoint,
    /// Probes on the kernel's own functions: also sees what the kernel maps by itself, and slows only those down that
    /// change their memory map
    Kprobe,
    /// Read the mappings once a second: nothing between two readings is seen
    Poll,
}

impl Mm {
    #[must_use]
    pub fn backends(self) -> Vec<Backend> {
        match self {
            Self::Auto => Backend::ALL.to_vec(),
            Self::Kprobe => vec![Backend::Kprobe],
            Self::Tracepoint => vec![Backend::Tracepoint],
            Self::Poll => vec![Backend::Poll],
        }
    }
}

/// Ways of putting probes into libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attach {
    /// The first of the following that works here
    Auto,
    /// By links that hold many probes (Linux 6.6): they come out together
    Multi,
    /// By a perf event for each probe: they come out one after the other
    Perf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    Dwarf,
    Fp,
    Copy,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// `terminal`: the text goes to one.
    #[must_use]
    pub fn wanted(self, terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => terminal && std::env::var_os("NO_COLOR").is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn layers_have_the_names_of_the_report() {
        assert_eq!(layer("pool_chunk"), Ok(Layer::PoolChunk));
        assert!(layer("chunks").is_err());
    }

    #[test]
    fn boundaries_are_a_library_and_a_symbol() {
        let symbol = |library: &str, symbol: &str| Symbol { library: library.to_owned(), symbol: symbol.to_owned() };
        assert_eq!(boundary("libc.so.6:malloc_trim"), Ok(symbol("libc.so.6", "malloc_trim")));
        assert_eq!(boundary("/a:b/libx.so:_ZN1a1bEv"), Ok(symbol("/a:b/libx.so", "_ZN1a1bEv")));
        for bad in ["", "libc.so.6", ":f", "libc.so.6:"] {
            assert!(boundary(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_takes_everything_behind_the_dashes() {
        let args = Args::parse_from(["tfmem", "run", "--grace", "1s", "--", "python", "--version", "-x"]);
        let Command::Run(run) = args.command else { unreachable!() };
        assert_eq!(run.command, ["python", "--version", "-x"]);
        assert_eq!(run.common.grace, Duration::from_secs(1));
        assert_eq!(run.common.min_bytes.as_u64(), 1 << 20);
    }
}
