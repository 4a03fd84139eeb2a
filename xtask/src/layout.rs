//! Where `cargo xtask setup` puts what it installs, and in which versions.
//!
//! One file for xtask, `tfmem/build.rs` and the integration tests (the latter two include it by path), so that the
//! three cannot disagree. Standard library only.

use std::{env, path::PathBuf};

/// Newer versions want an LLVM that Debian 12 does not have; this one uses the LLVM inside rustc.
pub const BPF_LINKER_VERSION: &str = "0.10.3";

/// Built without an operating system, loaded by the kernel.
pub const BPF_TARGET: &str = "bpfel-unknown-none";

/// Series of Debian's kernels that every test run boots.
pub const KERNELS: &[&str] = &["6.1", "6.12"];

/// A Python environment with one TensorFlow version.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    /// Folder below `python/` in the cache.
    pub name: &'static str,
    pub tensorflow: &'static str,
    /// Python versions that will do, best first.
    pub pythons: &'static [&'static str],
    /// What is installed: `tensorflow-cpu`, or `tensorflow`, which has the GPU side.
    pub distribution: &'static str,
}

/// Every test run has these: the first is the oldest TensorFlow the report cases hold for, the last the newest.
pub const REQUIRED: &[Environment] = &[
    environment("tf-2.15.1", "2.15.1", &["3.11", "3.10", "3.9"]),
    environment("tf-2.21.0", "2.21.0", &["3.11", "3.10", "3.12", "3.13"]),
];

/// What `cargo xtask test --full` adds, as far as the machine has the Python for it.
pub const EXTRA: &[Environment] = &[
    environment("tf-2.12.0", "2.12.0", &["3.11", "3.10", "3.9"]),
    environment("tf-2.18.1", "2.18.1", &["3.11", "3.10", "3.12"]),
    environment("py3.12-tf-2.21.0", "2.21.0", &["3.12"]),
    environment("py3.13-tf-2.21.0", "2.21.0", &["3.13"]),
];

/// TensorFlow with its GPU side, which the tests run over a stand-in for CUDA's libraries.
pub const GPU: Environment =
    Environment { distribution: "tensorflow", ..environment("gpu-tf-2.18.1", "2.18.1", &["3.11", "3.10", "3.12"]) };

const fn environment(name: &'static str, tensorflow: &'static str, pythons: &'static [&'static str]) -> Environment {
    Environment { name, tensorflow, pythons, distribution: "tensorflow-cpu" }
}

impl Environment {
    pub fn dir(&self) -> PathBuf {
        cache_dir().join("python").join(self.name)
    }

    pub fn python(&self) -> PathBuf {
        self.dir().join("bin/python")
    }

    /// Written last: an environment without it was interrupted (an environment cannot be moved into place when it is
    /// done, as its scripts hold its path).
    pub fn stamp(&self) -> PathBuf {
        self.dir().join(".complete")
    }
}

/// `$TFMEM_CACHE`, `$XDG_CACHE_HOME/tfmem` or `~/.cache/tfmem`.
pub fn cache_dir() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TFMEM_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("tfmem")))
        .or_else(|| Some(set("HOME")?.join(".cache/tfmem")))
        .unwrap_or_else(|| env::temp_dir().join("tfmem-cache"))
}

pub fn bpf_linker_dir() -> PathBuf {
    cache_dir().join(format!("bpf-linker-{BPF_LINKER_VERSION}"))
}

pub fn bpf_linker() -> PathBuf {
    bpf_linker_dir().join("bin/bpf-linker")
}

pub fn driver_dir() -> PathBuf {
    cache_dir().join("nvidia-driver")
}

/// NVIDIA's own driver library: a link to a file that is called after its version.
pub fn driver() -> PathBuf {
    driver_dir().join("lib/libcuda.so.1")
}

/// Kernels that the tests boot, and what it takes to find them.
pub fn kernels_dir() -> PathBuf {
    cache_dir().join("kernels")
}

/// The source of `core` in a toolchain (component rust-src): the BPF target has no ready-made one.
pub fn rust_src(sysroot: &str) -> PathBuf {
    PathBuf::from(sysroot).join("lib/rustlib/src/rust/library/core/Cargo.toml")
}
