//! Programs on TensorFlow's own C and C++ libraries, built with the headers and libraries of a wheel.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::{machine, program::Program};

/// Builds a program of `tests/programs` against a wheel.
pub fn build(source: &str, python: &Path) -> Result<PathBuf> {
    let packages = packages(python)?;
    let output = folder(&packages)?.join(Path::new(source).file_stem().context("no name")?);
    let source = machine::file("programs").join(source);
    // Linking reads half a million symbols: not again for each run.
    let newer = |than: &Path| Some(output.metadata().ok()?.modified().ok()? > than.metadata().ok()?.modified().ok()?);
    if newer(&source) == Some(true) {
        return Ok(output);
    }
    let plus = source.extension().is_some_and(|extension| extension == "cc");
    let compiler: &[&str] =
        if plus { &["g++", "-std=c++17", "-w"] } else { &["gcc", "-std=gnu11", "-Wall", "-Werror"] };
    let unfinished = output.with_extension("unfinished");
    let done = Program::new(compiler[0])
        .args(&compiler[1..])
        .arg("-I")
        .arg(packages.join("include"))
        .arg(&source)
        .args(["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"].map(|name| packages.join(name)))
        .arg(format!("-Wl,-rpath,{}", packages.display()))
        .arg("-o")
        .arg(&unfinished)
        .run()?;
    ensure!(done.code == 0, "{}: {}", compiler[0], done.stderr);
    fs::rename(&unfinished, &output)?;
    Ok(output)
}

/// A small saved model, written by Python on first use.
pub fn saved_model(python: &Path) -> Result<PathBuf> {
    let model = folder(&packages(python)?)?.join("saved_model");
    if !model.is_dir() {
        let unfinished = model.with_extension("unfinished");
        let script = machine::file("programs/save_model.py");
        let done = Program::new(python).arg(script).arg(&unfinished).env("TF_CPP_MIN_LOG_LEVEL", "3").run()?;
        ensure!(done.code == 0, "{}", done.stderr);
        fs::rename(&unfinished, &model)?;
    }
    Ok(model)
}

/// `site-packages/tensorflow` of an environment.
fn packages(python: &Path) -> Result<PathBuf> {
    let environment = python.parent().and_then(Path::parent).context("not in an environment")?;
    let library = environment.join("lib");
    fs::read_dir(&library)?
        .flatten()
        .map(|entry| entry.path().join("site-packages/tensorflow"))
        .find(|path| path.join("include").is_dir())
        .with_context(|| format!("no TensorFlow with headers in {}", library.display()))
}

/// One for each environment.
fn folder(packages: &Path) -> Result<PathBuf> {
    let environment = packages.ancestors().nth(4).and_then(Path::file_name).context("no environment")?;
    let folder = machine::target_dir()?.join("tfmem-native").join(environment);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
