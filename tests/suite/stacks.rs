//! Stacks walked in the kernel against those that the program sees itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tfmem::{
    event::{Body, Event, Stack, StackId},
    recording::reader::Reader,
};
use tfmem_tests::{
    fixtures::{self, FRAMEWORK, Variant},
    machine,
    program::Program,
    trace::{Trace, Traced},
};

/// How a stack ends, as on the wire.
const COMPLETE: u32 = 0;
const TRUNCATED: u32 = 1;
/// Frames of one stack.
const MOST: usize = 1023;

/// A trace's stacks and the names of its files.
pub struct Recorded {
    pub events: Vec<Event>,
    stacks: BTreeMap<StackId, Stack>,
    files: BTreeMap<u64, String>,
    pub stdout: String,
}

pub fn record(command: &[PathBuf], options: &[&str]) -> Result<Recorded> {
    let folder = TempDir::new()?;
    let trace = folder.path().join("trace");
    let output = Program::new(machine::tfmem()?)
        .args(["run", "--report-file", "/dev/null", "-o"])
        .arg(&trace)
        .args(options)
        .arg("--")
        .args(command)
        .run()?;
    ensure!(output.code == 0, "status {}\n{}", output.code, output.stderr);
    let events: Vec<Event> = Reader::open(File::open(&trace)?)?.collect();
    let (mut stacks, mut files) = (BTreeMap::new(), BTreeMap::new());
    for event in &events {
        match &event.body {
            Body::Stack(stack) => {
                stacks.insert(stack.id, Stack::clone(stack));
            }
            Body::CodeFile(file) => {
                let name = Path::new(&file.path).file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
                files.insert(u64::from(file.file), name);
            }
            _ => {}
        }
    }
    Ok(Recorded { events, stacks, files, stdout: output.stdout })
}

impl Recorded {
    /// The stack of the mapping of so many bytes.
    pub fn of_mapping(&self, bytes: u64) -> Result<&Stack> {
        let event = self.events.iter().find(|event| matches!(event.body, Body::Map { len, .. } if len == bytes));
        let id = event.with_context(|| format!("no mapping of {bytes} bytes"))?.stack.context("it has no stack")?;
        self.stacks.get(&id).context("its stack never came")
    }

    /// `file+address` of each frame; an address in no file stands alone.
    fn shown(&self, stack: &Stack) -> Vec<String> {
        self.shown_words(&stack.frames)
    }

    pub fn shown_words(&self, frames: &[u64]) -> Vec<String> {
        let name = |frame: u64| match self.files.get(&(frame >> 48)) {
            Some(file) => format!("{file}+{:x}", frame & 0xffff_ffff_ffff),
            None => "?".to_owned(),
        };
        frames.iter().map(|&frame| name(frame)).collect()
    }

    /// How many of a kind were lost in the end.
    pub fn lost(&self, kind: &str) -> u64 {
        let last = self.events.iter().rev().find_map(|event| match &event.body {
            Body::Lost { what, count } if &**what == kind => Some(*count),
            _ => None,
        });
        last.unwrap_or(0)
    }
}

/// What the program said of a mapping: bytes, frames from the function that mapped outwards.
fn said(line: &str) -> Option<(u64, Vec<(String, u64)>)> {
    let mut words = line.strip_prefix("STACK ")?.split(' ');
    let bytes = words.next()?.parse().ok()?;
    let frame = |word: &str| {
        let (file, address) = word.split_once('+')?;
        Some((file.to_owned(), u64::from_str_radix(address, 16).ok()?))
    };
    Some((bytes, words.map_while(frame).collect()))
}

/// Alloca, aligned frames, signal handlers, threads, callbacks from the C library, deep recursion.
#[test]
fn stacks_are_what_the_program_sees_itself() -> Result<()> {
    if !machine::can_trace("stacks_are_what_the_program_sees_itself") {
        return Ok(());
    }
    let recorded = record(&fixtures::get()?.stacks(), &["--stacks", "dwarf"])?;
    let own = recorded.stdout.lines().take_while(|line| *line != "RETURNS").filter_map(said);
    let mut compared = 0;
    for (bytes, expected) in own {
        let stack = recorded.of_mapping(bytes)?;
        let shown = recorded.shown(stack);
        // The innermost frame is in the C library's mmap; the program's own unwinder begins in the function that called
        // it, at another call.
        ensure!(shown.first().is_some_and(|first| first.starts_with("libc")), "{shown:?}");
        let kept = expected.len().min(MOST - 1);
        for (number, (file, address)) in expected.iter().enumerate().take(kept).skip(1) {
            // Our address is that of the call, but for code that a signal interrupted.
            let ours = shown.get(number + 1).with_context(|| format!("{shown:?} has less than {expected:x?}"))?;
            let same = *ours == format!("{file}+{:x}", address - 1) || *ours == format!("{file}+{address:x}");
            ensure!(same, "{bytes} bytes, frame {number}: {shown:?} is not {expected:x?}");
        }
        if expected.len() < MOST {
            ensure!(stack.end == COMPLETE, "{bytes} bytes: ends with {}: {shown:?}", stack.end);
            ensure!(shown.len() == expected.len() + 1, "{shown:?} is not {expected:x?}");
        } else {
            ensure!((stack.end, shown.len()) == (TRUNCATED, MOST), "{} frames, end {}", shown.len(), stack.end);
        }
        compared += 1;
    }
    ensure!(compared >= 9, "{compared} stacks compared");
    Ok(())
}

/// The return address of a function whose return is probed is the kernel's own meanwhile. Code made at run time has no
/// table; it keeps a frame pointer.
#[test]
fn stacks_go_through_probed_returns_and_code_made_at_run_time() -> Result<()> {
    if !machine::can_trace("stacks_go_through_probed_returns_and_code_made_at_run_time") {
        return Ok(());
    }
    let recorded = record(&fixtures::get()?.stacks(), &["--stacks", "dwarf"])?;
    let mut lines = recorded.stdout.lines().skip_while(|line| *line != "RETURNS");
    let mut next = || lines.find_map(said).context("the program said less than it should");
    for (what, through) in [("a probed return", "libtensorflow_cc.so.2"), ("made code", "?")] {
        let (bytes, _) = next()?;
        let stack = recorded.of_mapping(bytes)?;
        let shown = recorded.shown(stack);
        ensure!(stack.end == COMPLETE, "{what}: ends with {}: {shown:?}", stack.end);
        let place = shown.iter().position(|frame| frame.starts_with(through)).context(format!("{what}: {shown:?}"))?;
        // The program's own frames stand on both sides.
        let program = |frames: &[String]| frames.iter().any(|frame| frame.starts_with("stacks+"));
        ensure!(program(&shown[..place]) && program(&shown[place..]), "{what}: {shown:?}");
    }
    Ok(())
}

/// Each new stack is walked a second time, by framehop from a copy of the stack's memory.
#[test]
fn another_unwinder_agrees_on_fixtures() -> Result<()> {
    if !machine::can_trace("another_unwinder_agrees_on_fixtures") {
        return Ok(());
    }
    let traced = Trace::new()?.options(&["--stacks", "copy"]).run(fixtures::get()?.stacks())?;
    // In the two frames that are aligned more than the stack is, framehop tries the frame pointer. That may lead it on by
    // chance; what it should have found the program tells in another test.
    agrees(&traced, 15, 2)
}

#[test]
fn another_unwinder_agrees_on_tensorflow() -> Result<()> {
    if !machine::can_trace("another_unwinder_agrees_on_tensorflow") {
        return Ok(());
    }
    let python = machine::required_python("tf-2.21.0")?;
    let script = machine::file("cases/01_unclosed_tf1_session.py");
    let traced = Trace::new()?.options(&["--stacks", "copy", "--buffer", "256MiB"]).run([python, script])?;
    agrees(&traced, 500, 5)
}

fn agrees(traced: &Traced, least: u64, most_unlike: u64) -> Result<()> {
    let count = |kind: &str| traced.report.losses.get(kind).copied().unwrap_or(0);
    let (equal, unlike, in_part) =
        (count("stacks_checked"), count("stacks_unlike_framehop"), count("stacks_checked_in_part"));
    println!("{equal} stacks are framehop's too, {unlike} are not, it did not reach the end of {in_part}");
    ensure!(equal >= least, "{equal} stacks are equal: {:?}", traced.report.losses);
    ensure!(unlike <= most_unlike, "{unlike} of {equal} stacks are not framehop's");
    Ok(())
}

/// Seen before, a stack travels as a number.
#[test]
fn a_stack_travels_once() -> Result<()> {
    if !machine::can_trace("a_stack_travels_once") {
        return Ok(());
    }
    let storm = fixtures::get()?.storm();
    let recorded = record(&[storm, "map".into(), "1000".into()], &["--stacks", "dwarf"])?;
    let ids: Vec<StackId> = recorded
        .events
        .iter()
        .filter(|event| matches!(event.body, Body::Map { len: 65536, .. }))
        .filter_map(|event| event.stack)
        .collect();
    ensure!(ids.len() >= 1000, "{} mappings have a stack", ids.len());
    let sent = recorded.events.iter().filter(|event| matches!(&event.body, Body::Stack(s) if s.id == ids[500])).count();
    ensure!(ids.iter().all(|id| *id == ids[500]) && sent == 1, "sent {sent} times");
    Ok(())
}

/// Walks are remembered; one from the same place, by another way, is another one all the same.
#[test]
fn ways_are_told_apart() -> Result<()> {
    if !machine::can_trace("ways_are_told_apart") {
        return Ok(());
    }
    let fixtures = fixtures::get()?;
    let folder = fixtures.library(Variant::Plain, FRAMEWORK).parent().context("no folder")?.to_owned();
    // Three levels, two calls on each: eight ways, one after the other.
    let command = [fixtures.ways(), folder, "4000".into(), "3".into()];
    let recorded = record(&command, &["--stacks", "dwarf"])?;
    let chunks = recorded.events.iter().filter(|event| matches!(event.body, Body::ChunkAlloc { .. }));
    let ids: Vec<StackId> = chunks.filter_map(|event| event.stack).collect();
    ensure!(ids.len() == 4000, "{} chunks with a stack", ids.len());
    let ways: BTreeSet<StackId> = ids.iter().copied().take(8).collect();
    ensure!(ways.len() == 8, "{} ways", ways.len());
    ensure!(ids.iter().zip(ids.iter().skip(8)).all(|(before, after)| before == after), "ways are mixed up");
    Ok(())
}

/// Nothing is taken unless it is asked for.
#[test]
fn no_stacks_by_default() -> Result<()> {
    if !machine::can_trace("no_stacks_by_default") {
        return Ok(());
    }
    let storm = fixtures::get()?.storm();
    let recorded = record(&[storm, "map".into(), "10".into()], &[])?;
    ensure!(recorded.stacks.is_empty() && recorded.events.iter().all(|event| event.stack.is_none()));
    Ok(())
}
