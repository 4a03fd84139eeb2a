//! Component rust-src: `core` is built from source for the BPF target.

use anyhow::{Context as _, Result, bail};

use super::{present, step};
use crate::{layout, process::Program};

pub fn ensure() -> Result<()> {
    let sysroot = Program::new("rustc").args(["--print", "sysroot"]).output().context("rustc does not run")?;
    if layout::rust_src(&sysroot).is_file() {
        present("rust-src");
        return Ok(());
    }
    step("adding rust-src to the toolchain");
    if Program::new("rustup").arg("--version").output().is_none() {
        bail!("{sysroot} has no source of the standard library, and there is no rustup to add it: install rust-src");
    }
    // Without a toolchain's name: rustup told cargo, and so us, which one is in use.
    Program::new("rustup").args(["component", "add", "rust-src"]).run()
}
