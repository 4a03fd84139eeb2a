//! Where the project's files are.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::process::Program;

pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// `$CARGO_TARGET_DIR` or `target`.
pub fn target_dir() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        // Relative to where the person stands, while the cargo we start stands in the root.
        Some(dir) => std::path::absolute(dir).context("CARGO_TARGET_DIR is no path"),
        None => Ok(root().join("target")),
    }
}

pub fn binary(release: bool) -> Result<PathBuf> {
    let profile = if release { "release" } else { "debug" };
    Ok(target_dir()?.join(profile).join("tfmem"))
}

/// The cargo that runs us, in the root of the workspace.
pub fn cargo(args: &[&str]) -> Result<Program> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Ok(Program::new(cargo).args(args).current_dir(&root()).env("CARGO_TARGET_DIR", target_dir()?))
}
