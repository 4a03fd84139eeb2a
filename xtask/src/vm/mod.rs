//! `cargo xtask vm`: the probe suite (`tests/probes`) on several kernels.
//!
//! Each kernel is one of Debian's, booted in QEMU with a small world of our own; the suite runs on the host first, and
//! what it finds there is what the others are compared with.

pub mod apt;
mod golden;
mod initramfs;
mod judge;
mod kernels;
#[path = "../../../tests/probes/line.rs"]
mod line;
mod qemu;
mod said;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use self::{kernels::Kernel, said::Said};
use crate::{
    build, layout,
    process::{Program, is_root},
    setup, workspace,
};

/// This machine's own.
const HOST: &str = "host";
/// What the matrix has time for: an emulated processor takes half a millisecond to a whole one for a traced call.
const STORM: u64 = 30_000;
/// What `cargo xtask test --full` has time for.
pub const LONG_STORM: u64 = 300_000;
/// A program of the BPF object that no verifier takes.
const BROKEN: &str = "broken";

/// Boots Debian's kernels in QEMU, under software emulation, and runs the probe suite on each: every BPF program is
/// loaded, attached and must run when its fixture runs; what tfmem reports of the fixtures must be what it reports
/// here; what the kernel offers must be what tests/kernels says of it (TFMEM_BLESS=1 writes that). Kernels come from
/// this machine's Debian sources and their backports, and stay in the cache; nothing is installed.
#[derive(clap::Args)]
pub struct Args {
    /// A series of Debian's kernels, the newest of which is taken, or `host`; may be given several times
    #[arg(long = "kernel", default_values = layout::KERNELS)]
    kernels: Vec<String>,
    /// Only the parts of the suite whose name contains this: capabilities, programs, "ledger: fork" …
    #[arg(long, default_value = "")]
    filter: String,
    /// Calls of each mapping storm, of which there is one by each way of following the memory map
    #[arg(long, value_name = "CALLS", default_value_t = STORM)]
    storm: u64,
    /// Also prove that a program which the verifier refuses makes the matrix fail
    #[arg(long)]
    prove: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if !is_root() {
        bail!("tracing needs root: run `sudo -E $(which cargo) xtask vm`");
    }
    setup::ensure(setup::Extent::Kernels)?;
    let matrix = Matrix::build(args)?;
    // An emulator uses one processor: side by side.
    let results: Vec<Result<bool>> = thread::scope(|scope| {
        let running: Vec<_> = args.kernels.iter().map(|name| scope.spawn(|| matrix.all_right(name))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("panicked")))).collect()
    });
    let mut failed = Vec::new();
    for (name, result) in args.kernels.iter().zip(results) {
        if !result? {
            failed.push(name.as_str());
        }
    }
    ensure!(failed.is_empty(), "not as it should be on {}", failed.join(", "));
    if args.prove {
        matrix.prove(args.kernels.last().context("no kernel")?)?;
    }
    Ok(())
}

/// Everything that the kernels have in common.
struct Matrix {
    folder: PathBuf,
    filter: String,
    storm: u64,
    reference: Said,
    reference_took: Duration,
    /// By series: what is to be booted, or why it is not there
    kernels: BTreeMap<String, Result<Kernel, String>>,
}

impl Matrix {
    fn build(args: &Args) -> Result<Self> {
        let series: BTreeSet<&String> = args.kernels.iter().filter(|name| *name != HOST).collect();
        // One that cannot be had is no reason to leave out the others.
        let get = |name: &String| kernels::get(name).map_err(|error| format!("{error:#}"));
        let kernels = series.into_iter().map(|name| (name.clone(), get(name))).collect();
        let filter = &args.filter;
        build::build(true)?;
        workspace::cargo(&["build", "--package", "tfmem-tests", "--bin", "probes"])?.run()?;
        let folder = workspace::target_dir()?.join("tfmem-vm");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let begun = Instant::now();
        let reference = host(filter, args.storm, None)?;
        let contents = initramfs::Contents {
            suite: &suite()?,
            tfmem: &workspace::binary(true)?,
            // Compiled by the run on the host.
            fixtures: &workspace::target_dir()?.join("tfmem-fixtures"),
        };
        let reference_took = begun.elapsed();
        initramfs::write(&contents, &folder, &folder.join("initramfs"))?;
        Ok(Self { folder, filter: filter.to_owned(), storm: args.storm, reference, reference_took, kernels })
    }

    fn all_right(&self, name: &str) -> Result<bool> {
        if name == HOST {
            let wrong = judge::wrong(&self.reference, &self.reference);
            table::print(name, &self.reference, self.reference_took, &wrong);
            return Ok(wrong.is_empty());
        }
        let begun = Instant::now();
        // One that does not boot is no reason to leave out the others.
        let said = match self.boot(name, &self.filter, None) {
            Ok(said) => said,
            Err(error) => {
                println!("\n{name}: FAILED: {error:#}");
                return Ok(false);
            }
        };
        let mut wrong = judge::wrong(&said, &self.reference);
        if let Some(found) = &said.capabilities {
            wrong.extend(golden::compare(name, found)?);
        }
        table::print(name, &said, begun.elapsed(), &wrong);
        Ok(wrong.is_empty())
    }

    fn boot(&self, series: &str, filter: &str, also: Option<&str>) -> Result<Said> {
        let kernel =
            self.kernels.get(series).context("no such kernel")?.as_ref().map_err(|error| anyhow!("{error}"))?;
        println!("vm: booting {}", kernel.package);
        let mut arguments = Vec::new();
        if !filter.is_empty() {
            arguments.push(format!("probes.filter={}", filter.replace(' ', "_")));
        }
        arguments.push(format!("probes.storm={}", self.storm));
        arguments.extend(also.map(|program| format!("probes.also={program}")));
        let folder = self.folder.join(series);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let said = qemu::boot(&kernel.image, &self.folder.join("initramfs"), &arguments, &folder, limit(self.storm))?;
        let said = Said::read(&said)?;
        ensure!(said.release.starts_with(&format!("{}.", kernel.series)), "{} was booted", said.release);
        Ok(said)
    }

    /// The same again with one program that is refused: exactly that must be found.
    fn prove(&self, name: &str) -> Result<()> {
        const PART: &str = "programs";
        let said =
            if name == HOST { host(PART, self.storm, Some(BROKEN))? } else { self.boot(name, PART, Some(BROKEN))? };
        let reference = Said { programs: self.reference.programs.clone(), ..Said::default() };
        match &judge::wrong(&said, &reference)[..] {
            [only] if only.starts_with("broken was not loaded: ") && only.contains("verifier:") => {
                println!("\n{name}: a broken program is found: {only}");
                Ok(())
            }
            wrong => bail!("a broken program was to be found on {name}, and nothing else: {wrong:?}"),
        }
    }
}

/// Far above what a boot takes.
fn limit(storm: u64) -> Duration {
    const WAYS: u64 = 3;
    Duration::from_secs(600) + Duration::from_millis(10 * WAYS * storm)
}

/// The suite, here.
fn host(filter: &str, storm: u64, also: Option<&str>) -> Result<Said> {
    println!("vm: running the suite here");
    let program = Program::new(suite()?)
        .env("TFMEM_BIN", workspace::binary(true)?)
        .env_remove("LD_LIBRARY_PATH")
        .args(["--filter", filter, "--storm", &storm.to_string()])
        .args(also.into_iter().flat_map(|program| ["--also", program]));
    Said::read(&program.stdout()?)
}

fn suite() -> Result<PathBuf> {
    Ok(workspace::target_dir()?.join("debug/probes"))
}
