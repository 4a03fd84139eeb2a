//! The stand-in for a GPU: a driver that says in a log what it gave and took back, and the libraries that TensorFlow wants
//! beside it. What TensorFlow does is real; the driver is not.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tfmem::report::model::{Device, Layer, Process};

use super::{fixtures, trace::Trace};

/// Functions as the real driver has them, and without frame pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    FramePointers,
    Bare,
}

impl Build {
    const fn folder(self) -> &'static str {
        match self {
            Self::FramePointers => "cuda",
            Self::Bare => "cuda-bare",
        }
    }
}

const DRIVER: &[&str] = &["cuda/memory.c", "cuda/context.c", "cuda/allocate.c", "cuda/others.c"];
/// TensorFlow does not look for GPUs without them. It calls nothing in them as long as nothing is multiplied.
const EMPTY: &[&str] = &[
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcudnn.so.9",
];

/// Builds them below the fixtures' folder.
pub(super) fn compile(folder: &Path) -> Result<()> {
    for (build, options) in [(Build::FramePointers, "-fno-omit-frame-pointer"), (Build::Bare, "-fomit-frame-pointer")] {
        let place = folder.join(build.folder());
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        library(&place, "libcuda.so.1", DRIVER, &[options, "-pthread", "-ldl"])?;
        let search = format!("-L{}", place.display());
        library(&place, "libcudart.so.12", &["cuda/runtime.c"], &[&search, "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"])?;
        for name in EMPTY {
            library(&place, name, &["cuda/empty.c"], &[])?;
        }
    }
    // Beside the program, wherever the folder is taken to; `LD_LIBRARY_PATH` comes first.
    let own = Build::FramePointers.folder();
    let (search, run_path) = (format!("-L{}", folder.join(own).display()), format!("-Wl,-rpath,$ORIGIN/{own}"));
    fixtures::gcc(&["gpu.c"], &folder.join("gpu"), &["-pthread", &search, &run_path, "-l:libcuda.so.1"])
}

fn library(folder: &Path, name: &str, sources: &[&str], options: &[&str]) -> Result<()> {
    let soname = format!("-Wl,-soname,{name}");
    let all: Vec<&str> = ["-fPIC", "-shared", "-fvisibility=hidden", "-fcf-protection=none", &soname]
        .into_iter()
        .chain(options.iter().copied())
        .collect();
    fixtures::gcc(sources, &folder.join(name), &all)
}

/// The stand-in for the driver, as most programs get it.
pub fn driver() -> Result<PathBuf> {
    Ok(fixtures::get()?.folder().join(Build::FramePointers.folder()).join("libcuda.so.1"))
}

/// A GPU for one program.
pub struct StandIn {
    folder: TempDir,
    libraries: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl StandIn {
    pub fn new(build: Build) -> Result<Self> {
        let libraries = fixtures::get()?.folder().join(build.folder());
        Ok(Self { folder: TempDir::new()?, libraries, settings: Vec::new() })
    }

    /// Another number of GPUs, or another size of each.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: u64) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }

    /// What the program must be started with: `env NAME=VALUE …`. tfmem itself must not see it.
    pub fn around(&self, command: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
        let mut words = vec!["env".to_owned(), format!("LD_LIBRARY_PATH={}", self.libraries.display())];
        words.push(format!("STANDIN_LOG={}", self.log().display()));
        words.extend(self.settings.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(command.into_iter().map(Into::into));
        words
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Runs the program under the tracer.
    pub fn trace(
        &self,
        trace: Trace,
        command: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<super::trace::Traced> {
        trace.run(self.around(command))
    }

    /// What is still taken, by process, says the driver's own log.
    pub fn truth(&self) -> Result<BTreeMap<u32, Truth>> {
        let path = self.log();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("the driver was never asked for memory: {}", path.display()))?;
        let mut processes: BTreeMap<u32, Truth> = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, pid, kind, start, bytes, device] = words[..] else { anyhow::bail!("{line}") };
            let truth = processes.entry(pid.parse()?).or_default();
            truth.lines += 1;
            let key = (kind.to_owned(), u64::from_str_radix(start.trim_start_matches("0x"), 16)?);
            if what == "+" {
                truth.blocks.insert(key, (bytes.parse()?, device.parse()?));
            } else {
                ensure!(truth.blocks.remove(&key).is_some(), "what is not taken is given back: {line}");
            }
        }
        Ok(processes)
    }
}

/// What the driver has given one process.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub lines: u64,
    /// Kind and start: bytes, device
    blocks: BTreeMap<(String, u64), (u64, u32)>,
}

impl Truth {
    /// Bytes and number of what is alive of these kinds.
    pub fn of(&self, kinds: &[&str]) -> (u64, u64) {
        let own = self.blocks.iter().filter(|((kind, _), _)| kinds.contains(&kind.as_str()));
        own.fold((0, 0), |(bytes, count), (_, (n, _))| (bytes + n, count + 1))
    }

    /// Sizes of what is alive of these kinds.
    pub fn pieces(&self, kinds: &[&str]) -> Vec<u64> {
        let own = self.blocks.iter().filter(|((kind, _), _)| kinds.contains(&kind.as_str()));
        own.map(|(_, (bytes, _))| *bytes).collect()
    }

    fn on(&self, device: u32) -> u64 {
        let own = self.blocks.iter().filter(|((kind, _), (_, on))| ON_DEVICE.contains(&kind.as_str()) && *on == device);
        own.map(|(_, (bytes, _))| bytes).sum()
    }

    /// The report must say the same of the process, byte for byte.
    pub fn ensure_told(&self, process: &Process) -> Result<()> {
        let layers = &process.now.layers;
        let told = [(layers.device, ON_DEVICE), (layers.pinned, PINNED), (layers.managed, MANAGED)];
        for (told, kinds) in told {
            let (bytes, _) = self.of(kinds);
            ensure!(told == Some(bytes), "{kinds:?}: the driver gave {bytes}, the report says {told:?}");
        }
        for Device { index, explained_bytes, bands, .. } in &process.now.devices {
            let index = index.context("memory on a device that is not known")?;
            let given = self.on(index);
            ensure!(
                *explained_bytes == given,
                "GPU {index}: the driver gave {given}, the report says {explained_bytes}"
            );
            let sum: u64 = [bands.pool_in_use, bands.pool_free, bands.outside_pool].into_iter().flatten().sum();
            ensure!(sum == given, "GPU {index}: bands {bands:?} of {given}");
        }
        Ok(())
    }
}

pub const ON_DEVICE: &[&str] = &["device", "array", "stream", "physical"];
pub const PINNED: &[&str] = &["pinned", "registered"];
pub const MANAGED: &[&str] = &["managed"];

/// The layers of a GPU that survivors can be in, with the kinds of the log.
pub const SURVIVORS: [(Layer, &[&str]); 3] =
    [(Layer::Device, ON_DEVICE), (Layer::Pinned, &["pinned"]), (Layer::Managed, MANAGED)];
