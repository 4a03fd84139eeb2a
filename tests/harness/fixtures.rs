//! Small C programs and stand-ins for TensorFlow's libraries, compiled once for each test run.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;

use super::{
    gpu, machine,
    program::{Output, Program},
};

pub const FRAMEWORK: &str = "libtensorflow_framework.so.2";
pub const CC: &str = "libtensorflow_cc.so.2";

/// Where they lie on a machine without a compiler.
const READY: &str = "TFMEM_FIXTURES";

/// `push %rbp` first, as in the real libraries: no CET landing pad, no instruction moved in front of it.
const LIBRARY: &[&str] =
    &["-fPIC", "-shared", "-fno-omit-frame-pointer", "-fcf-protection=none", "-fno-schedule-insns2"];

/// How the stand-in libraries are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As the real ones: names exported
    Plain,
    /// Takes 1000 chunks in a constructor, while it is being loaded
    Early,
    /// Without the names that probes need
    Stripped,
    /// As in TensorFlow 2.18.1: the function that reports chunks is there, but its callers hold its body
    Inlined,
}

impl Variant {
    const fn folder(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Early => "early",
            Self::Stripped => "stripped",
            Self::Inlined => "inlined",
        }
    }
}

/// The compiled fixtures.
pub struct Fixtures {
    folder: PathBuf,
}

/// Compiles them on first use.
pub fn get() -> Result<&'static Fixtures> {
    static FIXTURES: OnceLock<Result<Fixtures, String>> = OnceLock::new();
    let fixtures = FIXTURES.get_or_init(|| match env::var_os(READY) {
        Some(folder) => Ok(Fixtures { folder: folder.into() }),
        None => compile().map_err(|error| format!("{error:#}")),
    });
    fixtures.as_ref().map_err(|error| anyhow!("{error}"))
}

impl Fixtures {
    #[must_use]
    pub fn library(&self, variant: Variant, name: &str) -> PathBuf {
        self.folder.join(variant.folder()).join(name)
    }

    /// The command line of the driver, which loads the libraries by itself.
    #[must_use]
    pub fn driver(&self, scenario: &str, variant: Variant) -> Vec<PathBuf> {
        vec![self.folder.join("driver"), scenario.into(), self.folder.join(variant.folder())]
    }

    /// The program that does not make it easy.
    #[must_use]
    pub fn messy(&self, scenario: &str) -> Vec<PathBuf> {
        vec![self.folder.join("messy"), scenario.into(), self.folder.join(Variant::Plain.folder())]
    }

    /// The same with everything linked in, C library and all, with its names or stripped of them.
    #[must_use]
    pub fn static_messy(&self, scenario: &str, stripped: bool) -> Vec<PathBuf> {
        let name = if stripped { "messy-static-stripped" } else { "messy-static" };
        vec![self.folder.join(name), scenario.into()]
    }

    /// The program with stacks of every kind.
    #[must_use]
    pub fn stacks(&self) -> Vec<PathBuf> {
        vec![self.folder.join("stacks"), self.folder.join(Variant::Plain.folder())]
    }

    /// A 32-bit program that sleeps for a minute. It has no library, so that none for 32 bit is needed.
    #[must_use]
    pub fn sleep_32_bit(&self) -> PathBuf {
        self.folder.join("sleep32")
    }

    /// The driver with the early libraries linked: they are loaded before it has a `main`.
    #[must_use]
    pub fn linked_driver(&self, scenario: &str) -> Vec<PathBuf> {
        vec![self.folder.join("driver-linked"), scenario.into()]
    }
}

impl Fixtures {
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program that calls a GPU's driver at random.
    #[must_use]
    pub fn gpu(&self) -> PathBuf {
        self.folder.join("gpu")
    }

    /// Threads that take and give back at random, as fast as they can.
    #[must_use]
    pub fn overflow(&self) -> PathBuf {
        self.folder.join("overflow")
    }

    /// The program that takes chunks from many places.
    #[must_use]
    pub fn ways(&self) -> PathBuf {
        self.folder.join("ways")
    }

    /// The program that changes its memory map in every way there is.
    #[must_use]
    pub fn mapping_storm(&self) -> PathBuf {
        self.folder.join("mapstorm")
    }

    /// The program with a heap of every kind, which says what glibc says of it.
    #[must_use]
    pub fn heap(&self) -> PathBuf {
        self.folder.join("heap")
    }

    /// The program that calls as fast as it can, for the bench.
    #[must_use]
    pub fn storm(&self) -> PathBuf {
        self.folder.join("storm")
    }
}

/// What the driver says that it did.
pub fn truth(output: &Output) -> Result<Truth> {
    let line = output.stdout.lines().find(|line| line.starts_with('{')).context("the driver said nothing")?;
    Ok(Truth(serde_json::from_str(line)?))
}

pub struct Truth(Value);

impl Truth {
    pub fn get(&self, key: &str) -> Result<u64> {
        self.0.get(key).and_then(Value::as_u64).with_context(|| format!("the driver said nothing of {key}"))
    }
}

fn compile() -> Result<Fixtures> {
    let folder = machine::target_dir()?.join("tfmem-fixtures");
    for variant in [Variant::Plain, Variant::Early, Variant::Stripped, Variant::Inlined] {
        compile_libraries(&folder.join(variant.folder()), variant)?;
    }
    let early = Variant::Early.folder();
    gcc(&["driver.c"], &folder.join("driver"), &[])?;
    gcc(&["storm.c"], &folder.join("storm"), &[])?;
    gcc(&["overflow.c"], &folder.join("overflow"), &["-pthread"])?;
    gcc(&["stacks.c"], &folder.join("stacks"), &["-pthread", "-fomit-frame-pointer"])?;
    gcc(&["heap.c"], &folder.join("heap"), &["-pthread"])?;
    gcc(&["ways.c"], &folder.join("ways"), &[])?;
    gcc(&["mapstorm.c"], &folder.join("mapstorm"), &["-pthread"])?;
    // Beside the program, wherever the folder is taken to.
    let (search, run_path) = (format!("-L{}", folder.join(early).display()), format!("-Wl,-rpath,$ORIGIN/{early}"));
    let linked = ["-DLINKED", &search, &run_path, &format!("-l:{FRAMEWORK}"), &format!("-l:{CC}")];
    gcc(&["driver.c"], &folder.join("driver-linked"), &linked)?;
    compile_messy(&folder)?;
    gpu::compile(&folder)?;
    Ok(Fixtures { folder })
}

/// No program with TensorFlow inside is smaller, so smaller ones are not looked at closely.
const LARGE: u64 = 64 << 20;

fn compile_messy(folder: &Path) -> Result<()> {
    gcc(&["messy.c"], &folder.join("messy"), &["-pthread"])?;
    let sources = ["messy.c", "framework.c", "cc.c"];
    let inside = ["-static", "-pthread", "-DLINKED", "-fno-omit-frame-pointer", "-fcf-protection=none"];
    for (name, strip) in [("messy-static", None), ("messy-static-stripped", Some("-s"))] {
        let options: Vec<&str> = inside.into_iter().chain(strip).collect();
        let output = folder.join(name);
        gcc(&sources, &output, &options)?;
        // A hole at the end: as large as the real thing without taking its room.
        fs::OpenOptions::new().write(true).open(&output)?.set_len(LARGE)?;
    }
    let alone = ["-m32", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector"];
    gcc(&["sleep32.c"], &folder.join("sleep32"), &alone)
}

fn compile_libraries(folder: &Path, variant: Variant) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut options = LIBRARY.to_vec();
    if variant == Variant::Stripped {
        // `strip` alone would leave the names of the dynamic symbol table.
        options.extend(["-DHIDE_NAMES", "-s"]);
    }
    if variant == Variant::Inlined {
        options.push("-DINLINED");
    }
    let framework: &[&str] = match variant {
        Variant::Early => &["framework.c", "ctor_lib.c"],
        Variant::Plain | Variant::Stripped | Variant::Inlined => &["framework.c"],
    };
    for (sources, name) in [(framework, FRAMEWORK), (&["cc.c"], CC)] {
        let soname = format!("-Wl,-soname,{name}");
        let options: Vec<&str> = options.iter().copied().chain([soname.as_str()]).collect();
        gcc(sources, &folder.join(name), &options)?;
    }
    Ok(())
}

pub(super) fn gcc(sources: &[&str], output: &Path, options: &[&str]) -> Result<()> {
    let sources = sources.iter().map(|source| machine::file("fixtures").join(source));
    // To a new name, then renamed: an old copy may be mapped by a program that is still running.
    let unfinished = output.with_extension("unfinished");
    let done = Program::new("gcc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"])
        .args(sources)
        .args(options)
        .arg("-o")
        .arg(&unfinished)
        .run()?;
    ensure!(done.code == 0, "gcc: {}", done.stderr);
    fs::rename(&unfinished, output).with_context(|| format!("cannot write {}", output.display()))
}
