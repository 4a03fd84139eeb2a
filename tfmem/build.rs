//! Builds the BPF object (`tfmem-ebpf`) on stable Rust and leaves it in `OUT_DIR`.
//!
//! An inner cargo with a target folder of its own: artifact dependencies are not stable, and the outer cargo holds
//! the lock of the outer target folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

#[allow(dead_code, reason = "the build needs the linker's place only")]
#[path = "../xtask/src/layout.rs"]
mod layout;

const PACKAGE: &str = "tfmem-ebpf";

fn main() {
    if let Err(error) = run() {
        // Without anyhow's backtrace: what went wrong must be the last thing on the screen.
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("..");
    let out_dir = PathBuf::from(variable("OUT_DIR")?);
    let linker = layout::bpf_linker();

    // All that the object is made of, and nothing else: an up-to-date tree rebuilds nothing.
    for input in [
        "tfmem-ebpf/src",
        "tfmem-ebpf/Cargo.toml",
        "tfmem-common/src",
        "tfmem-common/Cargo.toml",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    println!("cargo::rerun-if-changed={}", linker.display());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../xtask/src/layout.rs");
    for name in ["TFMEM_CACHE", "XDG_CACHE_HOME", "HOME"] {
        println!("cargo::rerun-if-env-changed={name}");
    }

    ensure!(linker.is_file(), "no bpf-linker at {}: run `cargo xtask setup`", linker.display());
    check_rust_src()?;
    build(&root, &out_dir, &linker)
}

fn check_rust_src() -> Result<()> {
    let output = Command::new(variable("RUSTC")?).args(["--print", "sysroot"]).output().context("cannot run rustc")?;
    let sysroot = String::from_utf8(output.stdout).context("rustc's sysroot is not UTF-8")?;
    let core = layout::rust_src(sysroot.trim());
    ensure!(core.is_file(), "the toolchain in {} has no component rust-src: run `cargo xtask setup`", sysroot.trim());
    Ok(())
}

fn build(root: &Path, out_dir: &Path, linker: &Path) -> Result<()> {
    let target_dir = shared_target(out_dir);
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .current_dir(root.join(PACKAGE))
        .args(["build", "--release", "--package", PACKAGE, "-Z", "build-std=core", "--target", layout::BPF_TARGET])
        .arg("--target-dir")
        .arg(&target_dir)
        // `-Z` on a stable toolchain. For this command alone: some build scripts look at the variable, and setting it
        // for the outer build would build the host's crates twice.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", linker)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags()?)
        // Under `cargo clippy` the outer cargo wraps rustc; the object needs the compiler itself.
        .env_remove("RUSTC_WORKSPACE_WRAPPER");
    let output = cargo.output().with_context(|| format!("cannot run {cargo:?}"))?;
    if !output.status.success() {
        bail!("the BPF object does not build:\n\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let object = target_dir.join(layout::BPF_TARGET).join("release").join(PACKAGE);
    fs::copy(&object, out_dir.join(PACKAGE)).with_context(|| format!("cannot copy {}", object.display()))?;
    Ok(())
}

/// `target/bpf-object`: `core` and aya need not be built again for each profile. `OUT_DIR` is
/// `target/PROFILE/build/PACKAGE-HASH/out`; in a folder of another shape it is the package's own.
fn shared_target(out_dir: &Path) -> PathBuf {
    let build = out_dir.ancestors().nth(2).filter(|folder| folder.ends_with("build"));
    let shared = build.and_then(|folder| folder.ancestors().nth(2));
    shared.map_or_else(|| out_dir.join("target"), |target| target.join("bpf-object"))
}

/// Debug information becomes BTF, which the kernel wants; aya-ebpf picks the register names by `bpf_target_arch`.
fn rustflags() -> Result<String> {
    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    Ok([format!("--cfg=bpf_target_arch=\"{arch}\""), "-Cdebuginfo=2".into(), "-Clink-arg=--btf".into()].join("\x1f"))
}

fn variable(name: &str) -> Result<String> {
    env::var(name).with_context(|| format!("{name} is not set: cargo runs this, not a person"))
}
