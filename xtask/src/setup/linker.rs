//! bpf-linker, in a pinned version, in the cache: whatever else the machine has is left alone.

use std::fs;

use anyhow::{Context as _, Result};

use super::{present, step};
use crate::{
    layout::{self, BPF_LINKER_VERSION},
    process::Program,
    workspace,
};

pub fn ensure() -> Result<()> {
    let what = format!("bpf-linker {BPF_LINKER_VERSION}");
    if version().is_some_and(|text| text.contains(BPF_LINKER_VERSION)) {
        present(&what);
        return Ok(());
    }
    step(&format!("installing {what} (some two minutes)"));
    let place = layout::bpf_linker_dir();
    let unfinished = layout::cache_dir().join("bpf-linker.unfinished");
    // What an interrupted run left is not to be trusted.
    remove(&unfinished)?;
    remove(&place)?;
    workspace::cargo(&["install", "bpf-linker", "--version", BPF_LINKER_VERSION, "--locked", "--root"])?
        .arg(&unfinished)
        // Our target folder would be filled with the linker's dependencies; a temporary one is cargo's default here.
        .env_remove("CARGO_TARGET_DIR")
        .run()?;
    fs::rename(&unfinished, &place).with_context(|| format!("cannot move {what} to {}", place.display()))?;
    version().map(drop).with_context(|| format!("{} does not run", layout::bpf_linker().display()))
}

fn version() -> Option<String> {
    Program::new(layout::bpf_linker()).arg("--version").output()
}

fn remove(dir: &std::path::Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}
