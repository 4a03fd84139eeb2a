//! Python's frames in stacks that the kernel took, against what the interpreter says of itself at each mapping.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tfmem::event::{Body, PythonCode};
use tfmem_common::python::is_code;
use tfmem_tests::machine;

use crate::{
    python::{interpreters, places},
    stacks::{Recorded, record},
};

type Place = tfmem::python::Place;

/// Frames of Python code that a stack has at most.
const MOST: usize = 256;

#[test]
fn stacks_have_pythons_frames() -> Result<()> {
    const NAME: &str = "stacks_have_pythons_frames";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let found = interpreters(NAME);
    ensure!(!found.is_empty(), "no Python at all");
    for (name, python) in found {
        compare(&python).with_context(|| format!("{name}: {}", python.display()))?;
    }
    Ok(())
}

fn compare(python: &Path) -> Result<()> {
    let program = machine::file("programs/python_mappings.py");
    let recorded = record(&[python.to_owned(), program], &["--stacks", "dwarf"])?;
    let known = known(&recorded);
    let mut compared = 0;
    for line in recorded.stdout.lines().filter(|line| line.starts_with('{')) {
        let said: Value = serde_json::from_str(line)?;
        let bytes = said["bytes"].as_u64().context("no size")?;
        let expected = places(&said["frames"])?;
        let stack = recorded.of_mapping(bytes)?;
        let words = &stack.frames;
        let read: Vec<&PythonCode> = words.iter().filter_map(|&word| known.get(&number(word)?)).collect();
        let shown = || format!("{bytes} bytes:\n{}\nread:\n{read:#?}", lines(&expected));
        // Where there are more than fit, native frames may take the room of Python's too.
        let deep = expected.len() > MOST;
        ensure!(read.len() == expected.len() || (deep && read.len() > MOST / 4 && read.len() <= MOST), "{}", shown());
        ensure!(read.iter().zip(&expected).all(|(read, said)| is(read, said)), "{}", shown());
        ensure!(deep || stack.end == 0, "{bytes} bytes: ends with {}", stack.end);
        if !deep {
            between(&recorded, words, &known).with_context(shown)?;
        }
        compared += 1;
    }
    ensure!(compared > 40, "{compared} stacks compared");
    for (what, expected) in [
        ("python_threads_unknown", 0..=0),
        ("python_frames_unreadable", 0..=0),
        // Of the stack that is too deep; that there are none in others is seen there.
        ("python_frames_unplaced", 0..=2 * MOST as u64),
        // Code that is made, run once and freed: how much of it is gone before it is read is a matter of load.
        ("python_code_gone", 0..=200),
        ("python_code_unreadable", 0..=0),
        ("python_frames_truncated", 1..=100),
    ] {
        let lost = recorded.lost(what);
        ensure!(expected.contains(&lost), "{what}: {lost}");
    }
    Ok(())
}

/// What the interpreter says, or code that it had freed when it was to be read: never another place.
fn is(read: &PythonCode, said: &Place) -> bool {
    match read {
        PythonCode::Known { file, function, line } => {
            (file, function, line) == (&said.file, &said.function, &said.line)
        }
        PythonCode::Gone { .. } => said.file.starts_with("<made"),
        PythonCode::Unreadable { .. } => false,
    }
}

/// The number of the place in a frame of Python code.
fn number(word: u64) -> Option<u32> {
    is_code(word).then_some(word as u32)
}

/// Native frames stand on both sides of all Python frames; and between a function that C calls and the one that called C.
fn between(recorded: &Recorded, words: &[u64], known: &BTreeMap<u32, PythonCode>) -> Result<()> {
    let python: Vec<usize> = words.iter().enumerate().filter(|(_, w)| is_code(**w)).map(|(at, _)| at).collect();
    let (first, last) = (python.first().context("no Python frame")?, python.last().context("none")?);
    ensure!(*first > 0 && last + 1 < words.len(), "Python frames stand outside of all native ones");
    for pair in python.windows(2) {
        let function = |at: usize| match known.get(&number(words[at])?) {
            Some(PythonCode::Known { function, .. }) => Some(function.as_str()),
            _ => None,
        };
        let (Some(inner), Some(outer)) = (function(pair[0]), function(pair[1])) else { continue };
        // `sorted` is a function of C's.
        if inner.ends_with("<lambda>") && outer.ends_with("fit") {
            ensure!(pair[1] > pair[0] + 2, "nothing is between {inner} and {outer}: {:?}", recorded.shown_words(words));
        }
    }
    Ok(())
}

fn known(recorded: &Recorded) -> BTreeMap<u32, PythonCode> {
    let places = recorded.events.iter().filter_map(|event| match &event.body {
        Body::PythonPlace(place) => Some((place.number, place.code.clone())),
        _ => None,
    });
    places.collect()
}

fn lines<'a>(places: impl IntoIterator<Item = &'a Place>) -> String {
    places.into_iter().map(|p| format!("  {}:{:?} {}\n", p.file, p.line, p.function)).collect()
}
