//! One virtual environment for each TensorFlow version.

use std::fs;

use anyhow::{Context as _, Result, bail};

use super::{present, step};
use crate::{layout::Environment, process::Program, python};

pub fn ensure(environment: &Environment) -> Result<()> {
    let what = describe(environment);
    if environment.stamp().is_file() && environment.python().exists() {
        present(&what);
        return Ok(());
    }
    // Made by hand, or interrupted between the last step and the stamp.
    if imports(environment) {
        present(&what);
        return stamp(environment);
    }
    let Some(python) = python::find(environment.pythons) else {
        bail!("{what} wants Python {}, with venv and pip", environment.pythons.join(" or "));
    };
    step(&format!("installing {what} with {} (a large download)", python.display()));
    let dir = environment.dir();
    Program::new(&python).args(["-m", "venv", "--clear"]).arg(&dir).run()?;
    Program::new(environment.python())
        .args([
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--only-binary",
            ":all:",
        ])
        .arg(format!("{}=={}", environment.distribution, environment.tensorflow))
        .run()?;
    if !imports(environment) {
        bail!("{what} was installed to {} but cannot be imported", dir.display());
    }
    stamp(environment)
}

/// For what only the full tests use: a machine without the Python for it is no failure, but is said.
pub fn ensure_if_possible(environment: &Environment) -> Result<()> {
    if !environment.stamp().is_file() && python::find(environment.pythons).is_none() {
        println!("setup: {}: left out, no Python {}", describe(environment), environment.pythons.join(" or "));
        return Ok(());
    }
    ensure(environment)
}

fn describe(environment: &Environment) -> String {
    format!("TensorFlow {} ({})", environment.tensorflow, environment.name)
}

fn imports(environment: &Environment) -> bool {
    Program::new(environment.python())
        .args(["-c", "import tensorflow; print(tensorflow.__version__)"])
        .env("TF_CPP_MIN_LOG_LEVEL", "3")
        // cargo's: Python's libraries are not to be looked for among ours.
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .as_deref()
        == Some(environment.tensorflow)
}

fn stamp(environment: &Environment) -> Result<()> {
    fs::write(environment.stamp(), "").with_context(|| format!("cannot write {}", environment.stamp().display()))
}
