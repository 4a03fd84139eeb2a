//! What this machine has, and what to do when it lacks something.

use std::{
    env,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::layout;
pub use super::layout::Environment;

/// The Python environments of `cargo xtask test`; the tests have one run for each.
pub const ENVIRONMENTS: &[Environment] = layout::REQUIRED;

/// TensorFlow with its GPU side.
pub const GPU_ENVIRONMENT: Environment = layout::GPU;

/// NVIDIA's own driver library, if it could be had.
#[must_use]
pub fn driver() -> Option<PathBuf> {
    Some(layout::driver()).filter(|path| path.exists())
}

/// What `--full` adds.
pub const EXTRA_ENVIRONMENTS: &[Environment] = layout::EXTRA;

/// `--full`: more versions, longer runs.
#[must_use]
pub fn long() -> bool {
    env::var_os("TFMEM_LONG").is_some()
}

/// Whether a slow test is left to `--full` in this environment, as it is not the newest; says so.
#[must_use]
pub fn is_for_full(test: &str, environment: &str) -> bool {
    let left = !long() && ENVIRONMENTS.last().is_some_and(|newest| newest.name != environment);
    if left {
        skip_optional(test, &format!("{environment} only with --full"));
    }
    left
}

/// Says that `test` was not run. Past the test runner's capture: a skip nobody sees is a lie.
pub fn skip(test: &str, why: &str) {
    say(&format!("SKIP {test}: {why}"));
}

/// The same for a test that not every machine must be able to run.
pub fn skip_optional(test: &str, why: &str) {
    say(&format!("SKIP {test} (optional): {why}"));
}

fn say(line: &str) {
    // Nothing to be done about a closed standard output.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// False, and said so, where nothing can be traced.
#[must_use]
pub fn can_trace(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip(test, "not root");
    }
    root
}

/// The interpreter of an environment that `cargo xtask setup` finished.
pub fn python(environment: &Environment) -> Option<PathBuf> {
    environment.stamp().is_file().then(|| environment.python())
}

/// The one of that name, which every machine has after `cargo xtask setup`.
pub fn required_python(name: &str) -> Result<PathBuf> {
    let environment =
        ENVIRONMENTS.iter().find(|environment| environment.name == name).with_context(|| format!("no such: {name}"))?;
    python(environment).with_context(|| format!("{name} is not installed: run `cargo xtask setup`"))
}

/// The tfmem under test: `$TFMEM_BIN`, or the newest in the target folder.
pub fn tfmem() -> Result<PathBuf> {
    if let Some(path) = env::var_os("TFMEM_BIN") {
        return Ok(PathBuf::from(path));
    }
    let target = target_dir()?;
    let mut found: Vec<_> = ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("tfmem"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    found.sort();
    match found.pop() {
        Some((_, path)) => Ok(path),
        None => bail!("no tfmem in {}: run `cargo xtask build`", target.display()),
    }
}

/// A test binary lies in `TARGET/PROFILE/deps`, a program in `TARGET/PROFILE`.
pub fn target_dir() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot tell where the tests are")?;
    let folder = own.parent().filter(|folder| folder.file_name() != Some("deps".as_ref()));
    folder
        .or_else(|| own.ancestors().nth(2))
        .and_then(Path::parent)
        .map(Path::to_path_buf)
        .with_context(|| format!("{} is not in a target folder", own.display()))
}

/// The path without links and relative parts.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

/// A file below `tests/`.
#[must_use]
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
