//! Python's frames, read from outside, against what the interpreter says of itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::python::{Place, Remote, Runtime};
use tfmem_tests::{machine, running::Running};

/// Versions that tfmem reads; each is tried where an interpreter of it is there.
const VERSIONS: [&str; 6] = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

#[test]
fn frames_are_those_that_the_interpreter_says() -> Result<()> {
    const NAME: &str = "frames_are_those_that_the_interpreter_says";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let mut found = interpreters(NAME);
    for environment in machine::ENVIRONMENTS.iter().chain(machine::EXTRA_ENVIRONMENTS) {
        if let Some(python) = machine::python(environment) {
            found.insert(environment.name.to_owned(), python);
        }
    }
    ensure!(!found.is_empty(), "no Python at all");
    for (name, python) in found {
        compare(&python).with_context(|| format!("{name}: {}", python.display()))?;
    }
    Ok(())
}

/// By version: those of pyenv, and those on the path. Versions that are not there are skipped aloud.
pub fn interpreters(test: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pyenv")));
    for version in VERSIONS {
        let name = format!("python{version}");
        let installed = root.iter().flat_map(|root| root.join("versions").read_dir().into_iter().flatten().flatten());
        let installed = installed.map(|folder| folder.path().join("bin").join(&name));
        let mut all = installed.chain([Path::new("/usr/bin").join(&name), Path::new("/usr/local/bin").join(&name)]);
        if let Some(python) = all.find(|path| path.is_file()) {
            found.insert(version.to_owned(), python);
        } else {
            machine::skip_optional(test, &format!("no Python {version} here"));
        }
    }
    found
}

fn compare(python: &Path) -> Result<()> {
    let mut program = Running::start([python, &machine::file("programs/python_shapes.py")])?;
    let said: Value = serde_json::from_str(&program.line()?)?;
    let said = said["threads"].as_array().context("no threads")?;
    let mut said: Vec<Vec<Place>> = said.iter().map(places).collect::<Result<_>>()?;

    let runtime = Runtime::find(program.pid())?;
    let memory = Remote::open(program.pid())?;
    let mut read = Vec::new();
    for thread in runtime.layout.threads(&memory, runtime.address)? {
        let (frames, complete) = runtime.layout.frames(&memory, thread.state, 1000)?;
        ensure!(complete);
        read.push(runtime.layout.places(&memory, &frames)?);
    }
    // What was waiting has a line of its own; the order of the threads is nobody's.
    let deepest = |threads: &mut Vec<Vec<Place>>| threads.sort_by_key(|frames| std::cmp::Reverse(frames.len()));
    deepest(&mut said);
    deepest(&mut read);
    ensure!(said.len() == 4 && read.len() == 4, "{} threads, {} read", said.len(), read.len());
    for (said, read) in said.iter().zip(&read) {
        ensure!(said == read, "said:\n{}read:\n{}", shown(said), shown(read));
    }
    ensure!(said[0].len() > 50, "{}", shown(&said[0]));
    let (frames, complete) = runtime.layout.frames(&memory, main_thread(&runtime, &memory)?, 7)?;
    ensure!(frames.len() == 7 && !complete, "a limit is a limit");
    Ok(())
}

fn main_thread(runtime: &Runtime, memory: &Remote) -> Result<u64> {
    let threads = runtime.layout.threads(memory, runtime.address)?;
    Ok(threads.last().context("no thread")?.state)
}

pub fn places(frames: &Value) -> Result<Vec<Place>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let place = |frame: &Value| {
        let line = frame[2].as_u64().and_then(|line| u32::try_from(line).ok());
        Ok(Place { file: text(&frame[0])?, function: text(&frame[1])?, line })
    };
    frames.as_array().context("no frames")?.iter().map(place).collect()
}

fn shown(frames: &[Place]) -> String {
    frames.iter().map(|f| format!("  {}:{:?} {}\n", f.file, f.line, f.function)).collect()
}
